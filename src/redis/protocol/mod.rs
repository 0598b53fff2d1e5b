//! Commands and replies in terms of redis-rs: checks, operators' counts and limits, and script runs. Also the names of
//! semaphores. The scripts are in `proto::verbs`.

mod check;
mod counts;
mod limits;
mod name;
mod presence;
mod script;

pub(super) use check::{
    CHECK, OPERATOR_COMMANDS, failures, question_about, questions, redirect_probe,
};
pub(super) use counts::{SemaphoreCounts, count_commands, live_processes, read_counts, read_time};
pub(super) use limits::{limit_command, limit_target_and_note, read_limit, read_limits};
pub(super) use name::{flow_name, flow_of, key_of, name_start, semaphore_name, stored_name};
pub(super) use presence::{describe, read_process};
pub(super) use script::{Form, convert_reply, query_command, script_command};
