//! Commands and replies in terms of redis-rs: checks, operators' counts and limits, and script runs. Also the names of
//! semaphores. The scripts are in `proto::verbs`.

mod check;
mod counts;
mod limits;
mod name;
mod presence;
mod script;

pub(super) use check::{CHECK, OPERATOR_COMMANDS, elsewhere, failures, own_question, questions};
pub(super) use counts::{SemaphoreCounts, count_commands, live_processes, read_counts, read_time};
pub(super) use limits::{limit_command, limit_target_and_note, limits, read_limit};
pub(super) use name::{flow_name, flow_of, key_of, name, name_of, names_of};
pub(super) use presence::{described, process};
pub(super) use script::{Form, query, reply, script_command};
