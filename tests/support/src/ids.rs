//! The ids of permits, as servers know them.

/// The id of what another process has claimed: the permit of this number, with neither a flow nor a label.
pub fn id(process: &str, permit: u64, [limit, weight, lease_ms]: [u64; 3]) -> String {
    let [permit, limit, weight, lease_ms] = [permit, limit, weight, lease_ms].map(base36);
    format!("{process}.{permit}.0.0.{limit}.{weight}.{lease_ms}.0...")
}

/// A number as ids have it.
fn base36(number: u64) -> String {
    let digit = char::from_digit((number % 36) as u32, 36);
    let before = (number >= 36).then(|| base36(number / 36));
    before.unwrap_or_default().chars().chain(digit).collect()
}
