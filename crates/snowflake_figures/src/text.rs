//! Numbers as readers see them: three digits that count, separated thousands, units.

/// A whole number with separated thousands: 4,096,000.
pub fn whole(number: f64) -> String {
    let digits = format!("{:.0}", number.round().abs());
    let mut text = if number.round() < 0.0 { "-".to_owned() } else { String::new() };
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

/// Three digits, and a word for the size: 4.10 million.
pub fn short(number: f64) -> String {
    match number {
        n if n >= 999.5e9 => format!("{} trillion", digits(n / 1e12)),
        n if n >= 999.5e6 => format!("{} billion", digits(n / 1e9)),
        n if n >= 999.5e3 => format!("{} million", digits(n / 1e6)),
        n => digits(n),
    }
}

/// A value of an axis: as few characters as it needs.
pub fn tick(value: f64) -> String {
    let (number, unit) = match value {
        v if v >= 1e9 => (v / 1e9, " billion"),
        v if v >= 1e6 => (v / 1e6, " million"),
        v if v >= 1e3 => return whole(v),
        v => (v, ""),
    };
    format!("{}{unit}", (number * 1e9).round() / 1e9)
}

/// A duration given in milliseconds: 500 ns, 3.00 ms.
pub fn duration(ms: f64) -> String {
    scaled(ms, digits)
}

/// A duration on an axis: 500 ns, 3 ms.
pub fn duration_tick(ms: f64) -> String {
    scaled(ms, tick)
}

fn scaled(ms: f64, text: fn(f64) -> String) -> String {
    match ms {
        0.0 => "0".to_owned(),
        ms if ms >= 999.5 => format!("{} s", text(ms / 1e3)),
        ms if ms >= 0.9995 => format!("{} ms", text(ms)),
        ms if ms >= 0.000_999_5 => format!("{} µs", text(ms * 1e3)),
        ms => format!("{} ns", text(ms * 1e6)),
    }
}

/// A share of 1: 50.0 %.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 99.9 && p < 101.0 => "over 99.9 %".to_owned(),
        p if p >= 99.95 => format!("{} %", whole(p)),
        p if p < 1e-4 => "below 0.0001 %".to_owned(),
        p if p < 0.1 => format!("{p:.4} %"),
        p => format!("{p:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        let texts =
            [0.0, 2.0, 0.01234, 0.1666, 0.998, 4.096, 35.12, 165.4, 4_095_700.0, 999.7, 12_345.0, -0.1];
        assert_eq!(
            texts.map(digits),
            [
                "0",
                "2.00",
                "0.0123",
                "0.167",
                "0.998",
                "4.10",
                "35.1",
                "165",
                "4,100,000",
                "1,000",
                "12,300",
                "-0.100"
            ]
        );
        assert_eq!([4_096_000.0, -1_234.0, 7.4].map(whole), ["4,096,000", "-1,234", "7"]);
    }

    #[test]
    fn large_numbers_have_words() {
        let texts = [4_096_000.0, 999_999.0, 16_384.0, 3.6e14].map(short);
        assert_eq!(texts, ["4.10 million", "1.00 million", "16,400", "360 trillion"]);
    }

    #[test]
    fn an_axis_has_no_zeros_that_say_nothing() {
        assert_eq!(
            [0.1, 2.0, 50.0, 5_000.0, 2e6, 1e9].map(tick),
            ["0.1", "2", "50", "5,000", "2 million", "1 billion"]
        );
        assert_eq!([0.1, 1.0, 1_000.0].map(duration_tick), ["100 µs", "1 ms", "1 s"]);
    }

    #[test]
    fn durations_and_shares_have_units() {
        assert_eq!(
            [0.0, 0.0005, 0.02, 3.0, 2_000.0].map(duration),
            ["0", "500 ns", "20.0 µs", "3.00 ms", "2.00 s"]
        );
        assert_eq!(
            [1e-9, 0.0005, 0.5, 1.0, 7.8].map(percent),
            ["below 0.0001 %", "0.0500 %", "50.0 %", "over 99.9 %", "780 %"]
        );
    }
}
