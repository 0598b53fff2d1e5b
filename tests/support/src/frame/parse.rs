//! Parses a value from bytes.

use super::Reply;

/// Takes the first value off `rest`. Returns `None` while the value is incomplete; then `rest` is unspecified.
///
/// # Panics
///
/// When the bytes are not RESP.
pub(super) fn parse(rest: &mut &[u8]) -> Option<Reply> {
    let header = take_header(rest)?;
    let (kind, value) = header.split_at(1);
    match kind {
        "+" | "," | "(" => Some(Reply::Simple(value.to_owned())),
        "-" => Some(Reply::Error(value.to_owned())),
        ":" => Some(Reply::Int(number(value))),
        "#" => Some(Reply::Int((value == "t").into())),
        "_" => Some(Reply::Nil),
        "$" | "=" => take_bulk(rest, number(value)),
        "!" => take_bulk(rest, number(value)).map(|bulk| Reply::Error(bulk.text().to_owned())),
        "*" | "~" | ">" => take_array(rest, number(value)),
        "%" => take_array(rest, 2 * number(value)),
        _ => panic!("not RESP: {header:?}"),
    }
}

fn take_header(rest: &mut &[u8]) -> Option<String> {
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let header = String::from_utf8_lossy(&rest[..end]).into_owned();
    *rest = &rest[end + 2..];
    Some(header)
}

fn take_bulk(rest: &mut &[u8], length: i64) -> Option<Reply> {
    let Ok(length) = usize::try_from(length) else {
        return Some(Reply::Nil);
    };
    let bytes = rest.get(..length)?.to_vec();
    *rest = rest.get(length + 2..)?;
    Some(Reply::Bulk(bytes))
}

fn take_array(rest: &mut &[u8], length: i64) -> Option<Reply> {
    if length < 0 {
        return Some(Reply::Nil);
    }
    let elements: Option<_> = (0..length).map(|_| parse(rest)).collect();
    elements.map(Reply::Array)
}

fn number(digits: &str) -> i64 {
    digits.parse().expect("RESP counts in decimal digits")
}
