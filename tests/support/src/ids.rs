//! The ids of permits in servers.

/// The id of a permit that another process has claimed, by the permit's number, without a flow or a label.
pub fn id(process: &str, permit: u64, [limit, weight, lease_ms]: [u64; 3]) -> String {
    let [permit, limit, weight, lease_ms] = [permit, limit, weight, lease_ms].map(base36);
    format!("{process}.{permit}.0.0.{limit}.{weight}.{lease_ms}.0...")
}

/// A number in the base 36 of ids.
fn base36(number: u64) -> String {
    let digit = char::from_digit((number % 36) as u32, 36);
    let before = (number >= 36).then(|| base36(number / 36));
    before.unwrap_or_default().chars().chain(digit).collect()
}
