//! The examples `crawler` and `gateway`, as processes of their own.

mod crawler;
mod gateway;
