//! The examples `crawler` and `gateway`, run as separate processes.

mod crawler;
mod gateway;
