//! nginx.

use super::{Proxy, program};
use std::{net::SocketAddr, path::Path, process::Command};

const MISSING: &str =
    "these tests need `nginx`: `apt-get install nginx-light`, or `brew install nginx`";

/// An nginx with default settings in front of these servers, except that request bodies may have any size.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Nginx<'a> {
    pub(crate) servers: &'a [SocketAddr],
    /// Additional parameters of each server.
    pub(crate) server: &'a str,
    /// Additional directives in `http`.
    pub(crate) http: &'a str,
    /// Additional directives in `location /`.
    pub(crate) location: &'a str,
}

impl Nginx<'_> {
    pub(crate) async fn start(self) -> Proxy {
        let config = |folder: &Path, listen| self.config(folder, listen);
        Proxy::start(config, command, MISSING).await
    }

    /// nginx runs as a single process, so that it can be killed and its counts of failures cover all requests.
    fn config(self, folder: &Path, listen: SocketAddr) -> String {
        let folder = folder.display();
        let servers = self.servers.iter();
        let Self {
            server: parameters,
            http,
            location,
            ..
        } = self;
        let servers: String = servers
            .map(|server| format!("server {server} {parameters};"))
            .collect();
        format!(
            "
            daemon off;
            master_process off;
            pid {folder}/pid;
            error_log stderr notice;
            events {{ worker_connections 1024; }}
            http {{
                access_log off;
                client_body_temp_path {folder}/client;
                proxy_temp_path {folder}/proxy;
                fastcgi_temp_path {folder}/fastcgi;
                uwsgi_temp_path {folder}/uwsgi;
                scgi_temp_path {folder}/scgi;
                upstream service {{ {servers} }}
                {http}
                server {{
                    listen {listen};
                    client_max_body_size 0;
                    location / {{
                        proxy_pass http://service;
                        {location}
                    }}
                }}
            }}
            "
        )
    }
}

fn command(config: &Path) -> Command {
    let mut command = Command::new(program("nginx"));
    let folder = config.parent().expect("a file lies in a folder");
    command.arg("-e").arg("stderr");
    command.arg("-p").arg(folder).arg("-c").arg(config);
    command
}
