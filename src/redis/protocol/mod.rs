//! The calls that operators and checks make, the names of semaphores, and how a script is named to a server. The scripts are in
//! `proto::verbs`.

mod check;
mod limits;
mod name;
mod operate;
mod pause;
mod presence;
mod script;

pub(super) use check::{CHECK, OF_OPERATORS, elsewhere, failures, own_question, questions};
pub(super) use limits::{limit_command, limit_of, limits, set_limit};
pub(super) use name::{flow_name, flow_of, key_of, name, name_of, names_of};
pub(super) use operate::{
    Listed, Next, Revocation, alive, counted_at, counting, is_done, now, usage,
};
pub(super) use pause::{PauseCall, PauseEntry};
pub(super) use presence::{described, limits_command, process, who};
pub(super) use script::{Form, Script, reply};
