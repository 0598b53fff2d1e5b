//! The hash slot of a key, as the specification of Redis Cluster has it.

/// How many slots there are.
pub(in crate::redis::transport) const SLOTS: usize = 16_384;

/// The slot of a key, or of a semaphore's name, which all of its keys begin with.
pub(in crate::redis) fn slot_of(key: &[u8]) -> usize {
    usize::from(crc16(tag(key))) % SLOTS
}

/// What is hashed: the text within the first braces, unless there is none.
fn tag(key: &[u8]) -> &[u8] {
    let within = |key: &[u8]| {
        let start = key.iter().position(|byte| *byte == b'{')? + 1;
        let length = key[start..].iter().position(|byte| *byte == b'}')?;
        (length > 0).then_some(start..start + length)
    };
    within(key).map_or(key, |range| &key[range])
}

/// CRC-16/XMODEM: polynomial 0x1021, starting at zero.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let index = (crc >> 8) as u8 ^ byte;
        crc << 8 ^ TABLE[usize::from(index)]
    })
}

const TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let (mut crc, mut bit) = ((index as u16) << 8, 0);
        while bit < 8 {
            let carry = crc & 0x8000 != 0;
            crc = crc << 1 ^ if carry { 0x1021 } else { 0 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of `CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_those_of_the_server() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"p:{foo}:held"), 12_182);
        assert_eq!(slot_of(b"{}foo"), slot_of(b"{}foo"));
        assert_ne!(slot_of(b"{}foo"), slot_of(b""));
        assert_eq!(slot_of(b"{{foo}}"), slot_of(b"{foo"));
    }
}
