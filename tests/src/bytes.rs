//! Bytes that look random and are the same each time: `fake-agent` prints them, the tests know them.

/// `length` bytes that follow from `seed` alone (xorshift64*).
#[must_use]
pub fn of_seed(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A number below `limit`, different for each `turn`.
#[must_use]
pub fn number(seed: u64, turn: u64, limit: u64) -> u64 {
    let bytes = of_seed(seed.wrapping_mul(1_000_003).wrapping_add(turn), 16);
    u64::from_le_bytes(bytes[8..16].try_into().unwrap()) % limit
}

#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
