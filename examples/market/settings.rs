//! The settings, from the environment.

use crate::place::Redis;
use std::{env, error::Error, fmt, io, ops::RangeInclusive, str::FromStr, time::Duration};

/// The settings. Each is an environment variable.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `PORT`: the port to listen on, 3000 by default. 0 means any free port.
    pub(crate) port: u16,
    /// `REDIS_URL`, `REDIS_CLUSTER` or `REDIS_SENTINELS`: the place of the permits and the market. In memory by
    /// default.
    pub(crate) redis: Option<Redis>,
    /// `LIMIT`: the requests that an account may have in flight, 5 by default.
    pub(crate) limit: u32,
    /// `FLEET_LIMIT`: the requests that all accounts together may have in flight, 1000 by default.
    pub(crate) fleet_limit: u32,
    /// `LEASE_MS`: how long a permit outlives a killed process, 10000 by default. Permits in memory need no lease.
    pub(crate) lease: Duration,
    /// `WAIT_MS`: how long a request may wait for its permit, 0 by default.
    pub(crate) wait: Duration,
    /// `MAX_STALL_MS`: how long a client may leave its response unread (by default without a bound), and the pings of
    /// its WebSocket unanswered (30000 by default).
    pub(crate) max_stall: Option<Duration>,
    /// `SHADOW`: with `1`, admits every request and logs the refusals that it would have made.
    pub(crate) shadow: bool,
    /// `WHEN_UNAVAILABLE`: what happens to requests while Redis is unavailable: `refuse` (the default), `admit`, or
    /// `share` for this process's share of the limits.
    pub(crate) when_unavailable: WhenUnavailable,
}

/// The treatment of requests while Redis is unavailable.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WhenUnavailable {
    Refuse,
    Admit,
    Share,
}

/// A day. No longer lease or wait makes sense.
const MAX_MS: u64 = 24 * 60 * 60 * 1_000;

impl Settings {
    /// Reads the environment.
    ///
    /// # Errors
    ///
    /// Returns a [`SettingError`] for the first wrong setting.
    pub(crate) fn from_env() -> Result<Self, SettingError> {
        Ok(Self {
            port: number("PORT", 3_000, 0..=u16::MAX)?,
            redis: Redis::from_env()?,
            limit: number("LIMIT", 5, 1..=u32::MAX)?,
            fleet_limit: number("FLEET_LIMIT", 1_000, 1..=u32::MAX)?,
            lease: Duration::from_millis(number("LEASE_MS", 10_000, 100..=MAX_MS)?),
            wait: Duration::from_millis(number("WAIT_MS", 0, 0..=MAX_MS)?),
            max_stall: optional("MAX_STALL_MS", 1..=MAX_MS)?.map(Duration::from_millis),
            shadow: number("SHADOW", 0, 0..=1_u8)? == 1,
            when_unavailable: when_unavailable()?,
        })
    }
}

/// The text of a variable, if it is set.
pub(crate) fn text(name: &'static str) -> Result<Option<String>, SettingError> {
    match env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(SettingError::NotUnicode { name }),
    }
}

fn when_unavailable() -> Result<WhenUnavailable, SettingError> {
    const NAME: &str = "WHEN_UNAVAILABLE";
    match text(NAME)?.as_deref() {
        None | Some("refuse") => Ok(WhenUnavailable::Refuse),
        Some("admit") => Ok(WhenUnavailable::Admit),
        Some("share") => Ok(WhenUnavailable::Share),
        Some(other) => {
            let why = format!("{other:?} is not `refuse`, `admit` or `share`");
            Err(SettingError::unusable(NAME, why))
        }
    }
}

/// The number in a variable, which must be within `range`.
fn number<T>(name: &'static str, default: T, range: RangeInclusive<T>) -> Result<T, SettingError>
where
    T: FromStr + PartialOrd + Into<u64> + Copy,
{
    Ok(optional(name, range)?.unwrap_or(default))
}

/// The number in a variable without a default, if it is set.
fn optional<T>(name: &'static str, range: RangeInclusive<T>) -> Result<Option<T>, SettingError>
where
    T: FromStr + PartialOrd + Into<u64> + Copy,
{
    let Some(value) = text(name)? else {
        return Ok(None);
    };
    match value.parse().ok().filter(|number| range.contains(number)) {
        Some(number) => Ok(Some(number)),
        None => Err(SettingError::Number {
            name,
            value,
            min: (*range.start()).into(),
            max: (*range.end()).into(),
        }),
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            limit,
            fleet_limit,
            lease,
            wait,
            shadow,
            when_unavailable,
            ..
        } = self;
        let store = match &self.redis {
            None => "memory".to_owned(),
            Some(redis) => {
                let setting = redis.place.setting();
                format!("Redis ({setting}), when unavailable: {when_unavailable:?}")
            }
        };
        let trial = if *shadow { ", in shadow" } else { "" };
        write!(
            f,
            "limit {limit}, fleet limit {fleet_limit}{trial}, lease {lease:?}, wait {wait:?}, state in {store}"
        )
    }
}

/// An error in a setting. Its text begins with the setting's name.
#[derive(Debug)]
pub(crate) enum SettingError {
    /// The value is no number, or out of range.
    Number {
        name: &'static str,
        value: String,
        min: u64,
        max: u64,
    },
    /// The value is not UTF-8.
    NotUnicode { name: &'static str },
    /// The port cannot be listened on.
    Port { port: u16, source: io::Error },
    /// The value is well-formed but cannot be used. The source is the reason.
    Unusable {
        name: &'static str,
        source: Box<dyn Error + Send + Sync>,
    },
}

impl SettingError {
    pub(crate) fn unusable(
        name: &'static str,
        why: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Unusable {
            name,
            source: why.into(),
        }
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number {
                name,
                value,
                min,
                max,
            } => {
                write!(
                    f,
                    "{name}: {value:?} is not a whole number from {min} to {max}"
                )
            }
            Self::NotUnicode { name } => write!(f, "{name}: it is not UTF-8"),
            Self::Port { port, .. } => write!(f, "PORT: cannot listen on {port}"),
            Self::Unusable { name, .. } => write!(f, "{name}: it cannot be used"),
        }
    }
}

impl Error for SettingError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Port { source, .. } => Some(source),
            Self::Unusable { source, .. } => Some(&**source),
            _ => None,
        }
    }
}
