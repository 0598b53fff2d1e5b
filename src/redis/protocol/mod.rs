//! The commands of checks, those of operators that are no scripts, the names of semaphores, and how a script is named to a
//! server. The scripts are in `proto::verbs`.

mod check;
mod counts;
mod limits;
mod name;
mod presence;
mod script;

pub(super) use check::{CHECK, OF_OPERATORS, elsewhere, failures, own_question, questions};
pub(super) use counts::{Counted, alive, counted_at, counting, now};
pub(super) use limits::{limit_command, limit_name, limits, read_limit};
pub(super) use name::{flow_name, flow_of, key_of, name, name_of, names_of};
pub(super) use presence::{described, process};
pub(super) use script::{Form, query, reply, script_command};
