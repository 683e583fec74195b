//! Numbers as readers see them: three digits that count, separated thousands.

/// A whole number with separated thousands: 4,096,000.
fn whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three digits that count: 0.0123, 1.00, 12.3, 4,100,000.
pub fn digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    // Rust rounds when it prints.
    let rounded: f64 = format!("{value:.2e}").parse().expect("a number that was printed just now");
    let decimals = 2 - rounded.abs().log10().floor() as i32;
    if decimals > 0 { format!("{rounded:.*}", decimals as usize) } else { whole(rounded) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        let texts = [0.0, 2.0, 0.01234, 0.1666, 0.998, 4.096, 35.12, 165.4, 4_095_700.0, 999.7, 12_345.0];
        assert_eq!(
            texts.map(digits),
            ["0", "2.00", "0.0123", "0.167", "0.998", "4.10", "35.1", "165", "4,100,000", "1,000", "12,300"]
        );
    }
}
