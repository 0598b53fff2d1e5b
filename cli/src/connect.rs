//! Connects to the store that the arguments describe.

use crate::{
    arguments::ServerArguments,
    failure::{Failure, causes},
};
use std::{env, fs, future::Future, path::Path, time::Duration};
use tokio::time::timeout;
use tower_semaphore::{
    RedisSemaphore,
    redis::{
        Builder, ConnectError, Kind,
        client::{ConnectionInfo, IntoConnectionInfo},
    },
};

/// The timeout of one call once connected. It is long, because a person can wait for a busy server.
const CALL: Duration = Duration::from_secs(2);

/// The environment variable with the password. Other users of the machine cannot read it.
const PASSWORD: &str = "REDIS_PASSWORD";

/// The user of a server that has a password but no users.
const DEFAULT_USER: &str = "default";

/// The addresses of the servers, and the login.
pub(crate) struct Connector {
    urls: Vec<String>,
    /// The user and password for all servers except Sentinels. `None` if the URLs contain them.
    login: Option<(String, String)>,
}

impl Connector {
    /// `is_public` is true if the URLs are on the command line, where other users of the machine can read them.
    pub(crate) fn new(servers: &ServerArguments, is_public: bool) -> Result<Self, Failure> {
        let urls: Vec<_> = servers
            .urls
            .iter()
            .flat_map(|urls| split_urls(urls))
            .collect();
        let infos = urls.iter().map(|url| parsed(url));
        let infos = infos.collect::<Result<Vec<_>, _>>()?;
        if urls.len() > 1 && !servers.cluster && servers.sentinel.is_none() {
            let unclear = "--url: more than one URL needs --cluster or --sentinel";
            return Err(Failure::Usage(unclear.to_owned()));
        }
        let has_password = |url: &ConnectionInfo| url.redis_settings().password().is_some();
        if is_public && infos.iter().any(has_password) {
            return Err(Failure::Usage(format!(
                "--url: other users of this machine can read a password on the command line: put the URL \
                 into REDIS_URL, or the password into {PASSWORD} or a --password-file"
            )));
        }
        let password = password(servers.password_file.as_deref())?;
        if servers.user.is_some() && password.is_none() {
            let missing = format!("--user needs {PASSWORD} or --password-file");
            return Err(Failure::Usage(missing));
        }
        // A user in a Sentinel's URL is a user of the Sentinel, not of the primary.
        let url_info = infos.first().filter(|_| servers.sentinel.is_none());
        let url_user = url_info.and_then(|info| info.redis_settings().username());
        let user = servers.user.as_deref().or(url_user).unwrap_or(DEFAULT_USER);
        let login = password.map(|password| (user.to_owned(), password));
        Ok(Self { urls, login })
    }

    /// Connects a store with these settings. Only `check` connects as an application and not as an operator.
    pub(crate) async fn connect(
        self,
        servers: &ServerArguments,
        is_operator: bool,
    ) -> Result<RedisSemaphore, Failure> {
        let mut builder = RedisSemaphore::builder().prefix(&servers.prefix);
        builder = builder.operator(is_operator).timeout(CALL);
        if let Some(file) = &servers.ca {
            builder = builder.root_certificate(read(file, "--ca")?);
        }
        if let Some((user, password)) = self.login {
            builder = builder.fixed_credentials(user, password);
        }
        let connected = match &servers.sentinel {
            // Without a bound, because asking the Sentinels takes several round trips.
            Some(name) => builder.connect_sentinel(self.urls, name).await,
            None if is_operator => {
                let connect = one_or_more(builder, self.urls, servers);
                bounded(servers.connect_timeout, connect).await?
            }
            // An application also checks the server and the user's rights, which takes several calls.
            None => one_or_more(builder, self.urls, servers).await,
        };
        connected.map_err(|error| failure(&error))
    }
}

async fn one_or_more(
    builder: Builder,
    mut urls: Vec<String>,
    servers: &ServerArguments,
) -> Result<RedisSemaphore, ConnectError> {
    match servers.cluster {
        true => builder.connect_cluster(urls).await,
        false => builder.connect(urls.remove(0)).await,
    }
}

async fn bounded<T>(bound: Duration, connect: impl Future<Output = T>) -> Result<T, Failure> {
    let late = |_| {
        let text = format!("Redis has not answered within {bound:?}; --connect-timeout changes it");
        Failure::Store(text)
    };
    timeout(bound, connect).await.map_err(late)
}

/// The names of the library's settings, and the arguments that set them.
const ARGUMENTS: [(&str, &str); 6] = [
    ("url", "--url"),
    ("prefix", "--prefix"),
    ("root_certificate", "--ca"),
    ("credentials", "--user"),
    ("connect_cluster", "--cluster"),
    ("connect_sentinel", "--sentinel"),
];

/// A wrong argument is a usage failure that names the argument. Other errors, such as a wrong password, are failures of
/// the store.
pub(crate) fn failure(error: &ConnectError) -> Failure {
    let mut text = causes(error);
    for (setting, argument) in ARGUMENTS {
        text = text.replace(&format!("`{setting}`"), argument);
        if let Some(rest) = text.strip_prefix(&format!("{setting}: ")) {
            text = format!("{argument}: {rest}");
        }
    }
    let code = error.redis_error().and_then(|error| error.code());
    let is_denied = matches!(code, Some("NOAUTH" | "WRONGPASS"));
    match error.kind() {
        Kind::Misconfigured if error.setting().is_some() && !is_denied => Failure::Usage(text),
        _ => Failure::Store(text),
    }
}

/// Splits a list of URLs. A comma belongs to a password unless a URL follows it.
fn split_urls(list: &str) -> Vec<String> {
    let mut urls: Vec<String> = Vec::new();
    for part in list.split(',') {
        match urls.last_mut() {
            Some(url) if !part.contains("://") => *url += &format!(",{part}"),
            _ => urls.push(part.to_owned()),
        }
    }
    urls
}

fn parsed(url: &str) -> Result<ConnectionInfo, Failure> {
    // The message does not repeat the text, because it may contain a password.
    let wrong = |_| Failure::Usage("--url: it is no URL of a Redis server".to_owned());
    url.into_connection_info().map_err(wrong)
}

fn password(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let Some(file) = file else {
        return Ok(env::var(PASSWORD).ok().filter(|text| !text.is_empty()));
    };
    let text = String::from_utf8(read(file, "--password-file")?);
    let text = text.map_err(|_| Failure::Usage("--password-file: it is no text".to_owned()))?;
    Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
}

fn read(file: &Path, argument: &str) -> Result<Vec<u8>, Failure> {
    let wrong = |error| Failure::Usage(format!("{argument}: {}: {error}", file.display()));
    fs::read(file).map_err(wrong)
}
