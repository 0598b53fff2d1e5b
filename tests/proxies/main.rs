//! Services behind proxies: nginx and HAProxy, as processes of their own.

#![cfg(unix)]

mod cached;
mod client;
mod forwarding;
mod proxy;
mod service;
mod uploads;
