//! Reading IDs without generating any: spans of time, and the layouts of other systems, each compared with that system's
//! own publications.

use proptest::prelude::*;
use snowflake_core::foreign::{ForeignLayout, PRESETS};
use snowflake_core::layout::parse_epoch;
use snowflake_core::{Bits, Layout, Parts, Tick};

fn foreign(text: &str) -> ForeignLayout {
    ForeignLayout::find(text).unwrap_or_else(|problem| panic!("{text}: {problem}"))
}

#[track_caller]
fn assert_fields(layout: &str, id: i64, time: &str, expected: [Option<i64>; 3]) {
    let read = foreign(layout);
    assert_eq!(read.created_at_us(id), Some(parse_epoch(time).expect("a time")), "{layout} {id}");
    assert_eq!([0, 1, 2].map(|place| read.field(id, place)), expected.map(Some), "{layout} {id}");
}

// ---- what other systems have published ----

/// Wikipedia's article "Snowflake ID" decodes a tweet of @Wikipedia: 367597485448 ms after Twitter's epoch, machine 378
/// (datacenter 11, worker 26), sequence 0.
#[test]
fn a_tweet_is_read_as_wikipedia_reads_it() {
    let time = "2022-06-28T16:07:40.105Z";
    assert_fields("twitter", 1_541_815_603_606_036_480, time, [Some(11), Some(26), Some(0)]);
    assert_eq!(11 << 5 | 26, 378);
    assert_eq!(parse_epoch(time).unwrap() / 1_000, 1_288_834_974_657 + 367_597_485_448);
}

/// The example under "Snowflakes" in Discord's developer documentation ("Reference"): 1462015105796 ms Unix
/// time, internal worker 1, internal process 0, increment 7.
#[test]
fn discords_example_is_read_as_its_documentation_reads_it() {
    let time = "2016-04-30T11:18:25.796Z";
    assert_fields("discord", 175_928_847_299_117_063, time, [Some(1), Some(0), Some(7)]);
    assert_eq!(parse_epoch(time).unwrap() / 1_000, 1_462_015_105_796);
}

/// The article "Sharding & IDs at Instagram" (2012) builds an ID step by step: 1387263000 ms since the epoch, shard
/// 1341 of user 31341, sequence 5001 % 1024. Its function has the epoch 1314220021721.
#[test]
fn instagrams_example_is_read_as_its_article_makes_it() {
    let id = 1_387_263_000_i64 << (64 - 41) | 1_341 << (64 - 41 - 13) | (5_001 % 1_024);
    assert_fields("instagram", id, "2011-09-09T22:28:04.721Z", [None, Some(1_341), Some(905)]);
    let created_ms = foreign("instagram").created_at_us(id).expect("an ID") / 1_000;
    assert_eq!(created_ms, 1_314_220_021_721 + 1_387_263_000);
}

/// The status in the example of `POST /api/v1/statuses` in Mastodon's documentation, created at
/// 2019-12-05T11:34:47.196Z. The database generates the ID a moment before the application sets `created_at`, here 13
/// ms. A status has no worker.
#[test]
fn mastodons_example_is_of_the_time_that_its_documentation_says() {
    assert_fields(
        "mastodon",
        103_254_962_155_278_888,
        "2019-12-05T11:34:47.183Z",
        [None, None, Some(53_800)],
    );
}

/// For Sonyflake no ID with its fields is published. This one follows `toID` in its source (sonyflake.go): time << 24 |
/// sequence << 16 | machine, with the start time 2014-09-01 00:00:00 UTC.
#[test]
fn a_sonyflake_is_read_as_its_source_makes_it() {
    let id = 8_640_001_i64 << (8 + 16) | 200 << 16 | 0xA8_2A;
    assert_fields("sonyflake", id, "2014-09-02T00:00:00.010Z", [None, Some(0xA8_2A), Some(200)]);
}

/// The README of uid-generator parses a UID: timestamp 2017-01-19 12:15:46 in China, worker 4, sequence 9. It was
/// generated with the README's own settings, not with the defaults.
#[test]
fn uid_generators_example_is_read_as_its_readme_reads_it() {
    let layout = "29/21/13 1s 2016-09-20T00:00:00+08:00";
    let time = "2017-01-19T12:15:46+08:00";
    assert_fields(layout, 180_363_646_902_239_241, time, [None, Some(4), Some(9)]);
}

/// For the defaults no ID with its fields is published. These are the constants of `DefaultUidGenerator`, whose epoch
/// is 1463673600000 ms Unix time.
#[test]
fn a_uid_of_the_defaults_is_read_as_its_source_makes_it() {
    let id = 1_000_000_i64 << (22 + 13) | 4 << 13 | 9;
    assert_fields("uid-generator", id, "2016-05-31T05:46:40Z", [None, Some(4), Some(9)]);
}

/// An ID that a README of Leaf (improvements by the community, May 2020) shows as the response of
/// `/api/snowflake/get/test`. Its fields are not published, but its time must be that of the README. Leaf's own
/// `decodeSnowflakeId` computes the time as (id >> 22) + 1288834974657.
#[test]
fn leafs_example_is_of_the_time_of_its_readme() {
    let id = 1_256_557_484_213_448_722;
    assert_fields("leaf", id, "2020-05-02T12:13:44.602Z", [None, Some(619), Some(18)]);
    assert_eq!(foreign("leaf").created_at_us(id), Some(((id >> 22) + 1_288_834_974_657) * 1_000));
}

/// pgEdge's documentation ("Snowflake functions") has `get_epoch(136169504773242881)` = 1704996539.845. Its page
/// "index" and its source (`SNOWFLAKE_NODE_SHIFT` 12, `SNOWFLAKE_COUNT_SHIFT` 0, since 2023-10-31) give the bits: 12-21
/// the node, 0-11 the counter. The first page still shows node and counter in the earlier order.
#[test]
fn pgedges_example_is_read_as_its_documentation_reads_it() {
    let time = "2024-01-11T18:08:59.845Z";
    assert_fields("pgedge", 136_169_504_773_242_881, time, [None, Some(0), Some(1)]);
    assert_fields("41/s12/w10 1ms 2023-01-01", 136_169_504_773_242_881, time, [None, Some(1), Some(0)]);
    assert_eq!(parse_epoch(time).unwrap() / 1_000, 1_704_996_539_845);
}

/// For ShardingSphere no ID with its fields is published. This one follows its `SnowflakeKeyGenerateAlgorithm`, which
/// takes the epoch from a calendar in the host's time zone.
#[test]
fn a_key_of_shardingsphere_is_read_as_its_source_makes_it() {
    let id = 86_400_000_i64 << (10 + 12) | 5 << 12 | 7;
    assert_fields("shardingsphere", id, "2016-11-02T00:00:00Z", [None, Some(5), Some(7)]);
    let in_china = "41/10/12 1ms 2016-11-01T00:00:00+08:00";
    assert_fields(in_china, id, "2016-11-02T00:00:00+08:00", [None, Some(5), Some(7)]);
    assert!(PRESETS.iter().any(|preset| preset.note.ends_with(in_china)), "the note");
}

#[test]
fn every_preset_can_be_read_and_is_found_in_any_case() {
    for preset in PRESETS {
        assert_eq!(foreign(preset.name), foreign(preset.layout), "{}", preset.name);
        assert_eq!(foreign(&format!(" {}\n", preset.name.to_uppercase())), foreign(preset.layout));
        assert!(!preset.note.is_empty());
        assert!(preset.layout.parse::<ForeignLayout>().is_ok(), "{}", preset.name);
    }
}

// ---- layouts written out ----

#[test]
fn a_field_of_no_bits_is_not_there() {
    assert_fields("41/0/22 1ms 2015-01-01", 7, "2015-01-01T00:00:00Z", [None, None, Some(7)]);
    assert_fields("41/22/0 1ms 2015-01-01", 7, "2015-01-01T00:00:00Z", [None, Some(7), None]);
    assert_fields("41/0/0 1s 2015-01-01", 7, "2015-01-01T00:00:07Z", [None, None, None]);
}

#[test]
fn an_epoch_is_a_date_in_utc_or_has_an_offset() {
    for epoch in ["2015-01-01", "2015-01-01T00:00:00Z", "2015-01-01 01:00:00+01:00", " 2015-01-01 "] {
        assert_fields(&format!(" 41/10/12 1ms {epoch}"), 0, "2015-01-01T00:00:00Z", [None, Some(0), Some(0)]);
    }
}

/// The highest of 64 bits is the sign, which is clear in every ID that can be read.
#[test]
fn sixty_four_bits_are_read_up_to_the_sign() {
    let layout = foreign("instagram");
    assert_eq!(layout.created_at_us(-1), None);
    assert_eq!(layout.field(i64::MAX, 1), Some(Some(8_191)));
    assert_eq!(layout.ends_at_us() / 1_000, 1_314_220_021_721 + (1_i64 << 40));
}

#[test]
fn what_has_bits_above_the_time_field_is_no_id() {
    let layout = foreign("41/5/7 1ms 2024-01-01");
    assert!(layout.created_at_us((1 << 53) - 1).is_some());
    assert_eq!(layout.created_at_us(1 << 53), None);
    assert_eq!(layout.field(i64::MIN, 0), None);
}

#[test]
fn a_layout_that_cannot_be_read_says_why() {
    for (text, problem) in [
        ("myspace", "neither a known name nor"),
        ("", "neither a known name nor"),
        ("41/10/12", "neither a known name nor"),
        ("41/10/12 2015-01-01", "neither a known name nor"),
        ("41-10-12 1ms 2015-01-01", "\"41-10-12\" is not of the form"),
        ("39/s8 10ms 2015-01-01", "\"39/s8\" is not of the form"),
        ("39/s8/wx 10ms 2015-01-01", "\"39/s8/wx\" is not of the form"),
        ("41/10/12 5ms 2015-01-01", "The tick is \"5ms\""),
        ("41/10/12 1MS 2015-01-01", "The tick is \"1MS\""),
        ("41/10/12 1ms yesterday", "The epoch \"yesterday\" is invalid"),
        ("41/10/12 1ms 2015-01-01 00:00:00", "The epoch \"2015-01-01 00:00:00\" is invalid"),
        ("41/10/12 1ms 20150101", "The epoch \"20150101\" is invalid. The time has no offset from UTC."),
        ("41/10/12 1ms 0000-01-01", "is before the year 1"),
        ("41/12/12 1ms 2015-01-01", "The fields need 65 bits; a positive bigint has 63."),
        ("4294967295/12/12 1ms 2015-01-01", "The fields need 4294967295 bits"),
        ("1/4294967295/0 1ms 2015-01-01", "The fields need 4294967295 bits"),
        ("0/10/12 1ms 2015-01-01", "The time field has no bits"),
        ("0/32/32 1ms 2015-01-01", "The fields need 64 bits"),
        ("60/1/1 1ms 2015-01-01", "The time field has 60 bits; with this tick, timestamps hold at most 52."),
        (
            "62/1+0/1 1ms 2015-01-01",
            "The time field has 62 bits; with this tick, timestamps hold at most 53.",
        ),
        (
            "41/10/12 1ms 2015-02-30",
            "The epoch \"2015-02-30\" is invalid. The value is not a valid date and time",
        ),
        ("41/10/12 1ms 2015-01-01T00:00:00", "is invalid. The time has no offset from UTC."),
        ("20/1/40 1ms 2015-01-01", "The sequence field has 40 bits; an integer holds at most 31."),
        ("20/s1/w40 1ms 2015-01-01", "The worker field has 40 bits"),
    ] {
        let error = ForeignLayout::find(text).expect_err(text);
        assert!(error.contains(problem), "{text}: {error}");
    }
}

// ---- our own layouts, read as foreign ones, and spans of time ----

/// Without a file of failures, which would land in the source tree.
pub fn cases() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

fn layouts() -> impl Strategy<Value = Layout> {
    let tick = prop_oneof![Just(Tick::Millisecond), Just(Tick::Centisecond), Just(Tick::Second)];
    let widths = (1..=42_u32, 0..=31_u32, 0..=31_u32, 0..=31_u32);
    (tick, widths, 0..4_102_444_800_i64).prop_map(|(tick, (time, datacenter, worker, sequence), epoch)| {
        let datacenter = datacenter.min(63 - time);
        let worker = worker.min(63 - time - datacenter);
        let sequence = sequence.min(63 - time - datacenter - worker);
        Layout::new(Bits { time, datacenter, worker, sequence }, tick, epoch * 1_000_000).unwrap()
    })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_layout_written_out_reads_as_the_layout_itself(layout in layouts(), seeds in any::<[u64; 4]>()) {
        let Bits { time, datacenter, worker, sequence } = layout.bits();
        let cut = |seed: u64, bits: u32| (seed % (1 << bits)) as i64;
        let parts = Parts {
            tick: cut(seeds[0], time),
            datacenter: cut(seeds[1], datacenter),
            worker: cut(seeds[2], worker),
            sequence: cut(seeds[3], sequence),
        };
        let epoch = jiff::Timestamp::from_microsecond(layout.epoch_us()).unwrap();
        let has = |value: i64, bits: u32| Some((bits > 0).then_some(value));
        let fields = [has(parts.datacenter, datacenter), has(parts.worker, worker), has(parts.sequence, sequence)];
        let expected = (Some(layout.starts_at(parts.tick)), fields);
        let read = |bits: String, id: i64| {
            let layout = foreign(&format!("{bits} {} {epoch}", layout.tick()));
            (layout.created_at_us(id), [0, 1, 2].map(|place| layout.field(id, place)))
        };
        prop_assert_eq!(read(layout.bits().to_string(), layout.pack(parts).unwrap()), expected);

        let node = parts.datacenter << worker | parts.worker;
        let id = (parts.tick << sequence | parts.sequence) << (datacenter + worker) | node;
        prop_assert_eq!(read(format!("{time}/s{sequence}/w{datacenter}+{worker}"), id), expected);
    }

    /// An ID was created at or after a time exactly if it is not below `lowest_id_from`, and before it exactly if it is
    /// not above `highest_id_before`. The very last ID of 63 bits is an exception to the first.
    #[test]
    fn a_span_has_exactly_the_ids_that_were_created_in_it(
        layout in layouts(),
        seed in 0..=i64::MAX,
        near in -3_000_000..3_000_000_i64,
        far in any::<i64>(),
    ) {
        let last = layout.pack(Parts {
            tick: layout.max_tick(),
            datacenter: layout.datacenters() - 1,
            worker: layout.workers() - 1,
            sequence: layout.sequences() - 1,
        });
        let last = last.unwrap();
        prop_assert_eq!(layout.highest_id(layout.max_tick()), last);
        for id in [seed % last.max(1), 0, last - 1, last] {
            let created_at_us = layout.starts_at(layout.unpack(id).unwrap().tick);
            for time in [created_at_us, created_at_us + near, far, i64::MIN, i64::MAX] {
                let (lowest, highest) = (layout.lowest_id_from(time), layout.highest_id_before(time));
                if id < i64::MAX || time <= created_at_us {
                    prop_assert_eq!(id >= lowest, created_at_us >= time, "{} from {}", id, time);
                }
                prop_assert_eq!(id <= highest, created_at_us < time, "{} before {}", id, time);
                prop_assert!(lowest >= 0 && highest <= last);
            }
        }
        prop_assert!(last <= layout.highest_id_before(i64::MAX));
    }
}
