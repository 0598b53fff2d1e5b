//! The deadline of a gRPC call.

use http::request::Parts;
use std::time::Duration;

/// The time that a gRPC client gives its call, from the header `grpc-timeout`. `None` without that header, or if it
/// does not have the form of the [protocol]: at most eight digits and a unit.
///
/// The time began when the client sent the call.
///
/// [protocol]: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
///
/// # Examples
///
/// See [`Claim::with_wait_until`](crate::Claim::with_wait_until) for its use.
///
/// ```
/// use std::time::Duration;
/// use tower_semaphore::key;
///
/// let request = http::Request::builder().header("grpc-timeout", "1500m").body(()).unwrap();
/// let (parts, ()) = request.into_parts();
/// assert_eq!(key::grpc_timeout(&parts), Some(Duration::from_millis(1_500)));
/// ```
pub fn grpc_timeout(parts: &Parts) -> Option<Duration> {
    let (unit, digits) = parts.headers.get("grpc-timeout")?.as_bytes().split_last()?;
    if digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = str::from_utf8(digits).ok()?.parse().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(number * 60 * 60)),
        b'M' => Some(Duration::from_secs(number * 60)),
        b'S' => Some(Duration::from_secs(number)),
        b'm' => Some(Duration::from_millis(number)),
        b'u' => Some(Duration::from_micros(number)),
        b'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}
