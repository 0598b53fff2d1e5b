//! The address of Redis, read from the environment.

use crate::settings::{SettingError, text};
use std::fs;

/// The place of the permits and the market, and the authority that has signed its certificate.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "this build can only say that it has no Redis")
)]
pub(crate) struct Redis {
    pub(crate) place: Place,
    /// `REDIS_CA`: the file with the certificate of a private authority, in PEM.
    pub(crate) authority: Option<Vec<u8>>,
}

/// The three ways to name a Redis.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "this build can only say that it has no Redis")
)]
pub(crate) enum Place {
    /// `REDIS_URL`: one server.
    Server(String),
    /// `REDIS_CLUSTER`: some nodes of a cluster, as `HOST:PORT,HOST:PORT` or as URLs.
    Cluster(Vec<String>),
    /// `REDIS_SENTINELS`: Sentinels in the same form, and `REDIS_SENTINEL_NAME`: the name of their primary.
    Sentinels(Vec<String>, String),
}

impl Redis {
    /// Reads the environment. Returns `None` if it names no server.
    ///
    /// # Errors
    ///
    /// Returns a [`SettingError`] for a setting that is wrong or conflicts with another one.
    pub(crate) fn from_env() -> Result<Option<Self>, SettingError> {
        let authority = authority()?;
        let place = place(authority.is_some())?;
        let uses_tls = |place: &Place| place.urls().iter().all(|url| url.starts_with("rediss://"));
        if authority.is_some() && !place.as_ref().is_some_and(uses_tls) {
            let why = "only `rediss://` uses it, and not every server is named so";
            return Err(SettingError::unusable("REDIS_CA", why));
        }
        Ok(place.map(|place| Self { place, authority }))
    }
}

impl Place {
    /// The setting that names this place.
    pub(crate) fn setting(&self) -> &'static str {
        match self {
            Self::Server(_) => "REDIS_URL",
            Self::Cluster(_) => "REDIS_CLUSTER",
            Self::Sentinels(..) => "REDIS_SENTINELS",
        }
    }

    /// The servers that the setting lists.
    pub(crate) fn urls(&self) -> &[String] {
        match self {
            Self::Server(url) => std::slice::from_ref(url),
            Self::Cluster(urls) | Self::Sentinels(urls, _) => urls,
        }
    }
}

fn authority() -> Result<Option<Vec<u8>>, SettingError> {
    let read = |path| fs::read(path).map_err(|error| SettingError::unusable("REDIS_CA", error));
    text("REDIS_CA")?.map(read).transpose()
}

/// The only place that is set, if any. `has_tls` is true if an address without a scheme means TLS.
fn place(has_tls: bool) -> Result<Option<Place>, SettingError> {
    let server = text("REDIS_URL")?.map(Place::Server);
    let cluster = list("REDIS_CLUSTER", has_tls)?.map(Place::Cluster);
    let mut places = [server, cluster, sentinels(has_tls)?].into_iter().flatten();
    let first = places.next();
    match (&first, places.next()) {
        (Some(first), Some(second)) => {
            let why = format!("{} is set too", first.setting());
            Err(SettingError::unusable(second.setting(), why))
        }
        _ => Ok(first),
    }
}

fn sentinels(has_tls: bool) -> Result<Option<Place>, SettingError> {
    const NAME: &str = "REDIS_SENTINEL_NAME";
    match (list("REDIS_SENTINELS", has_tls)?, text(NAME)?) {
        (Some(_), Some(name)) if name.is_empty() => {
            Err(SettingError::unusable(NAME, "it is empty"))
        }
        (Some(urls), Some(name)) => Ok(Some(Place::Sentinels(urls, name))),
        (None, None) => Ok(None),
        (Some(_), None) => {
            let why = "it is not set, and Sentinels may watch several primaries";
            Err(SettingError::unusable(NAME, why))
        }
        (None, Some(_)) => Err(SettingError::unusable(NAME, "REDIS_SENTINELS is not set")),
    }
}

/// The servers in a variable, as URLs.
fn list(name: &'static str, has_tls: bool) -> Result<Option<Vec<String>>, SettingError> {
    let Some(list) = text(name)? else {
        return Ok(None);
    };
    let scheme = if has_tls { "rediss" } else { "redis" };
    let url = |server: &str| match server.trim() {
        "" => Err(SettingError::unusable(
            name,
            "a server in the list is empty",
        )),
        url if url.contains("://") => Ok(url.to_owned()),
        address => Ok(format!("{scheme}://{address}/")),
    };
    list.split(',').map(url).collect::<Result<_, _>>().map(Some)
}
