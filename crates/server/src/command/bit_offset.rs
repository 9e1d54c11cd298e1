//! Offsets of bits as arguments.

use super::{Call, Failure};

/// The place of a bit; `#n` is the nth field of `width` bits.
pub(super) fn offset(call: &Call<'_>, at: usize, width: Option<u64>) -> Result<u64, Failure> {
    const REFUSED: Failure = Failure::line("ERR bit offset is not an integer or out of range");
    let (text, unit) = match (call.arg(at), width) {
        ([b'#', rest @ ..], Some(width)) => (rest, width),
        (text, _) => (text, 1),
    };
    let place = terrace_resp::parse_integer(text).and_then(|place| u64::try_from(place).ok());
    let place = place.and_then(|place| place.checked_mul(unit)).ok_or(REFUSED)?;
    match place / 8 < call.server.config.settings().proto_max_bulk_len {
        true => Ok(place),
        false => Err(REFUSED),
    }
}
