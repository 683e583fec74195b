//! An ID as 11 characters that sort as IDs do.
//!
//! The digits are in ASCII order, and every ID has the same number of them, leading zeros included. So comparing two
//! texts byte by byte compares the IDs, and an ID has exactly one text.

use std::fmt;

/// How many characters an ID has: 62^11 is above 2^63, 62^10 is not.
pub const LENGTH: usize = 11;

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Why a text is not a base62 ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base62Error {
    /// It has this many characters instead of 11.
    Length(usize),
    /// This character is not a digit.
    Digit(char),
    /// It is above 2^63 - 1.
    TooLarge,
}

impl fmt::Display for Base62Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(f, "A base62 ID has {LENGTH} characters; this text has {length}."),
            Self::Digit(other) => write!(f, "\"{other}\" is not a base62 digit."),
            Self::TooLarge => f.write_str("The value exceeds the highest bigint."),
        }
    }
}

impl std::error::Error for Base62Error {}

/// The text of an ID; `None` if it is negative.
pub fn to_base62(id: i64) -> Option<String> {
    let mut rest = u64::try_from(id).ok()?;
    let mut text = [0; LENGTH];
    for digit in text.iter_mut().rev() {
        *digit = DIGITS[(rest % 62) as usize];
        rest /= 62;
    }
    Some(text.iter().copied().map(char::from).collect())
}

/// The ID that a text stands for.
pub fn from_base62(text: &str) -> Result<i64, Base62Error> {
    if let Some(other) = text.chars().find(|c| !c.is_ascii_alphanumeric()) {
        return Err(Base62Error::Digit(other));
    }
    if text.len() != LENGTH {
        return Err(Base62Error::Length(text.len()));
    }
    let value = |byte: u8| match byte {
        b'0'..=b'9' => byte - b'0',
        b'A'..=b'Z' => byte - b'A' + 10,
        _ => byte - b'a' + 36,
    };
    text.bytes()
        .try_fold(0_i64, |id, byte| id.checked_mul(62)?.checked_add(value(byte).into()))
        .ok_or(Base62Error::TooLarge)
}
