//! Layouts, their bits, and epochs, as text and packed into IDs.

use super::ranges::{SECOND, cases, layouts, ticks, widest_time};
use proptest::prelude::*;
use snowflake_core::layout::{is_epoch, parse_epoch};
use snowflake_core::{Bits, Layout, LayoutError, Parts, Tick};

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn what_is_packed_is_unpacked(layout in layouts(), seeds in any::<[u64; 4]>()) {
        let of = |seed: u64, most: i64| (seed % (most as u64 + 1)) as i64;
        let parts = Parts {
            tick: of(seeds[0], layout.max_tick()),
            datacenter: of(seeds[1], layout.datacenters() - 1),
            worker: of(seeds[2], layout.workers() - 1),
            sequence: of(seeds[3], layout.sequences() - 1),
        };
        let id = layout.pack(parts).unwrap();
        assert!(id >= 0);
        assert_eq!(layout.unpack(id), Some(parts));
        assert_eq!(layout.tick_at(layout.starts_at(parts.tick)), parts.tick);
        assert_eq!(layout.tick_at(layout.starts_at(parts.tick) - 1), parts.tick - 1);

        let later = Parts { tick: parts.tick + 1, datacenter: 0, worker: 0, sequence: 0 };
        match layout.pack(later) {
            Some(later) => assert!(later > id, "a later tick is a greater ID"),
            None => assert_eq!(parts.tick, layout.max_tick()),
        }
        for outside in [
            Parts { tick: layout.max_tick() + 1, ..parts },
            Parts { datacenter: layout.datacenters(), ..parts },
            Parts { worker: layout.workers(), ..parts },
            Parts { sequence: layout.sequences(), ..parts },
            Parts { tick: -1, ..parts },
            Parts { sequence: -1, ..parts },
        ] {
            assert_eq!(layout.pack(outside), None, "{outside:?}");
        }
    }

    #[test]
    fn any_bigint_is_an_id_or_not_but_never_two(layout in layouts(), id in any::<i64>()) {
        match layout.unpack(id) {
            Some(parts) => assert_eq!(layout.pack(parts), Some(id)),
            None => {
                let Bits { time, datacenter, worker, sequence } = layout.bits();
                let width = time + datacenter + worker + sequence;
                assert!(id < 0 || id >> width.min(62) > 0 || width == 63);
            }
        }
    }

    #[test]
    fn bits_are_read_as_they_are_shown(widths in any::<[u32; 4]>()) {
        let [time, datacenter, worker, sequence] = widths;
        let bits = Bits { time, datacenter, worker, sequence };
        assert_eq!(bits.to_string().parse(), Ok(bits));
    }

    /// The record of a database is compared as text, so that equal layouts must have equal texts.
    #[test]
    fn layout_reads_its_own_text_only(layout in layouts(), end in "[ ,0+Z]{1,2}", at in any::<prop::sample::Index>()) {
        let text = layout.to_string();
        assert_eq!(text.parse(), Ok(layout));
        let mut changed = text.clone();
        changed.insert_str(at.index(text.len() + 1), &end);
        if let Ok(other) = changed.parse::<Layout>() {
            assert_eq!(other.to_string(), changed);
            assert_ne!(other, layout);
        }
    }

    #[test]
    fn lowest_id_at_orders_layouts_beyond_their_ends(layout in layouts(), times in any::<[i64; 2]>()) {
        let [low, high] = [times[0].min(times[1]), times[0].max(times[1])];
        assert!(layout.lowest_id_at(low) <= layout.lowest_id_at(high));
        let tick = layout.tick_at(low);
        if (0..=layout.max_tick()).contains(&tick) {
            assert_eq!(layout.lowest_id_at(low), layout.lowest_id(tick));
        } else {
            assert_eq!(layout.lowest_id_at(low) < 0, tick < 0);
        }
    }

    #[test]
    fn a_layout_is_accepted_exactly_when_it_adds_up(
        tick in ticks(),
        widths in prop_oneof![any::<[u32; 4]>(), prop::array::uniform4(0..40_u32)],
    ) {
        let [time, datacenter, worker, sequence] = widths;
        let bits = Bits { time, datacenter, worker, sequence };
        let sum = widths.into_iter().map(u64::from).sum::<u64>();
        let adds_up = sum <= 63 && (1..=widest_time(tick)).contains(&time);
        let fits = [datacenter, worker, sequence].into_iter().all(|width| width <= 31);
        assert_eq!(Layout::new(bits, tick, 0).is_ok(), adds_up && fits);
    }
}

#[test]
fn layout_has_its_epoch_in_utc() {
    let layout = |epoch: &str, tick| {
        let bits = Bits { time: 39, datacenter: 5, worker: 5, sequence: 12 };
        Layout::new(bits, tick, parse_epoch(epoch).expect("an epoch")).expect("a layout")
    };
    assert_eq!(Layout::default().to_string(), "41/10/12 1ms 2024-01-01 00:00:00+00");
    let other = layout("2024-01-01T05:30:00.25+05:30", Tick::Centisecond);
    assert_eq!(other.to_string(), "39/5+5/12 10ms 2024-01-01 00:00:00.25+00");
    assert_eq!(
        layout("0001-01-01T00:00:00Z", Tick::Second).to_string(),
        "39/5+5/12 1s 0001-01-01 00:00:00+00"
    );
    for other in [
        "",
        "41/10/12",
        "41/10/12 1ms",
        "41/10/12 1ms 2024-01-01",
        "41/10/12 1ms 2024-01-01T00:00:00Z",
        "41/10/12 2ms 2024-01-01 00:00:00+00",
        "41/10/12 1MS 2024-01-01 00:00:00+00",
        "41/0+10/12 1ms 2024-01-01 00:00:00+00",
        "41/10/13 1ms 2024-01-01 00:00:00+00",
        "41/10/12 1ms 2024-01-01 01:00:00+01",
        "twitter",
    ] {
        assert!(other.parse::<Layout>().is_err(), "{other}");
    }
}

#[test]
fn bad_layouts_are_refused_with_what_is_wrong() {
    let new = |text: &str, tick| text.parse().and_then(|bits| Layout::new(bits, tick, 0)).unwrap_err();
    let ms = |text| new(text, Tick::Millisecond);
    for text in ["", "41", "41/10", "41/10/12/1", "41/+5/12", "41/5+/12", "-1/2/3", "+1/2/3", "41/1+2+3/4"] {
        assert_eq!(ms(text), LayoutError::Unreadable(text.to_owned()));
    }
    assert_eq!(" 41/5+5/12\n".parse::<Bits>(), "41/5+5/12".parse(), "blanks around it are allowed");
    assert_eq!(ms("42/10/12"), LayoutError::TooWide(64));
    assert_eq!(ms("41/5+6/12"), LayoutError::TooWide(64));
    assert_eq!(ms("4294967295/1/1"), LayoutError::TooWide(u32::MAX));
    assert_eq!(ms("0/10/12"), LayoutError::NoTime);
    assert_eq!(ms("53/5/5"), LayoutError::TimeTooWide(53, 52));
    assert_eq!(new("49/5/5", Tick::Centisecond), LayoutError::TimeTooWide(49, 48));
    assert_eq!(new("43/5/5", Tick::Second), LayoutError::TimeTooWide(43, 42));
    assert_eq!(ms("20/0/32"), LayoutError::FieldTooWide("sequence", 32));
    assert_eq!(ms("20/32/0"), LayoutError::FieldTooWide("worker", 32));
    assert_eq!(ms("20/32+0/0"), LayoutError::FieldTooWide("datacenter", 32));
    assert_eq!(Tick::from_millis(10), Some(Tick::Centisecond));
    assert!([0, 2, 100, -1].into_iter().all(|millis| Tick::from_millis(millis).is_none()));
}

#[test]
fn an_epoch_is_a_moment_whoever_reads_it() {
    let good = [
        ("2024-01-01T00:00:00Z", 1_704_067_200 * SECOND),
        ("  2024-01-01 00:00:00Z ", 1_704_067_200 * SECOND),
        ("2024-01-01T00:00:00+00:00", 1_704_067_200 * SECOND),
        ("2024-01-01T05:30:00+05:30", 1_704_067_200 * SECOND),
        ("2023-12-31 19:00:00-05", 1_704_067_200 * SECOND),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("0001-01-01T00:00:00Z", -62_135_596_800 * SECOND),
        ("9999-12-30T22:00:00.999999Z", 253_402_207_201 * SECOND - 1),
    ];
    for (text, micros) in good {
        assert_eq!(parse_epoch(text), Ok(micros), "{text}");
        assert!(is_epoch(micros));
    }
    for micros in [-62_135_596_800 * SECOND - 1, 253_402_207_201 * SECOND] {
        assert!(!is_epoch(micros));
    }
    let bad = [
        "",
        "now",
        "today",
        "epoch",
        "infinity",
        "2024-01-01",
        "2024-01-01T00:00:00",
        "2024-01-01 00:00:00 Europe/Berlin",
        "2024-01-01T00:00:00[Europe/Berlin]",
        "2024-02-30T00:00:00Z",
        "2024-01-01T24:00:01Z",
        "1704067200",
        "2024-01-01T00:00:00Z x",
        "0000-12-31T23:59:59Z",
    ];
    for text in bad {
        assert!(parse_epoch(text).is_err(), "{text}: {:?}", parse_epoch(text));
    }
}
