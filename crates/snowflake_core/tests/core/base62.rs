//! IDs as text of eleven base62 digits.

use crate::reading::cases;
use proptest::prelude::*;
use snowflake_core::base62::{from_base62, to_base62};

#[test]
fn base62_has_eleven_digits_in_the_order_of_ascii() {
    assert_eq!(to_base62(0).as_deref(), Some("00000000000"));
    assert_eq!(to_base62(61).as_deref(), Some("0000000000z"));
    assert_eq!(to_base62(62).as_deref(), Some("00000000010"));
    assert_eq!(to_base62(i64::MAX).as_deref(), Some("AzL8n0Y58m7"));
    assert_eq!(to_base62(-1), None);
    assert_eq!(to_base62(i64::MIN), None);
}

#[test]
fn bad_base62_says_why() {
    for (text, error) in [
        ("", "A base62 ID has 11 characters; this text has 0."),
        ("000000000000", "A base62 ID has 11 characters; this text has 12."),
        ("0000000000-", "\"-\" is not a base62 digit."),
        (" 0000000000", "\" \" is not a base62 digit."),
        ("0000000000\u{e9}", "\"\u{e9}\" is not a base62 digit."),
        ("'0!", "\"'\" is not a base62 digit."),
        ("AzL8n0Y58m8", "The value exceeds the highest bigint."),
        ("zzzzzzzzzzz", "The value exceeds the highest bigint."),
    ] {
        assert_eq!(from_base62(text).unwrap_err().to_string(), error, "{text}");
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn base62_goes_both_ways_and_sorts_as_the_ids_do(a in 0..=i64::MAX, b in 0..=i64::MAX) {
        let (text_a, text_b) = (to_base62(a).unwrap(), to_base62(b).unwrap());
        prop_assert_eq!(from_base62(&text_a), Ok(a));
        prop_assert_eq!(text_a.cmp(&text_b), a.cmp(&b));
    }

    #[test]
    fn any_text_is_one_id_or_none(text in "[0-9A-Za-z]{11}|.{0,12}") {
        if let Ok(id) = from_base62(&text) {
            prop_assert_eq!(to_base62(id), Some(text));
        }
    }
}
