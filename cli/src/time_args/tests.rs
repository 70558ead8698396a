//! Times in zones that put their clocks, at every moment and around each change.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use chrono::LocalResult;
use chrono_tz::Tz;
use proptest::prelude::*;

use super::*;

/// Zones that put clocks by an hour, by half an hour, at midnight, back in winter, over a whole day, and never.
const ZONES: [Tz; 12] = [
    Tz::UTC,
    Tz::Europe__Berlin,
    Tz::Europe__Dublin,
    Tz::America__New_York,
    Tz::America__St_Johns,
    Tz::America__Havana,
    Tz::Africa__Cairo,
    Tz::Africa__Casablanca,
    Tz::Asia__Beirut,
    Tz::Asia__Kathmandu,
    Tz::Australia__Lord_Howe,
    Tz::Pacific__Apia,
];

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn read(zone: Tz, text: &str) -> Result<Timestamp, BadTime> {
    let now = at("2026-11-21T23:30:00Z");
    match text.parse::<TimeArg>()?.within(&zone, now)? {
        TimePoint::At(at) => Ok(at),
        TimePoint::Ago(age) => panic!("{text} is {age} ago"),
    }
}

fn zone() -> impl Strategy<Value = Tz> {
    prop::sample::select(ZONES.to_vec())
}

/// Moments from 1970 to 2037, every other one near a change of the clocks of its zone.
fn moment_of_zone() -> impl Strategy<Value = (Tz, Timestamp)> {
    let seconds = 0i64..2_114_380_800;
    (zone(), seconds, any::<bool>(), -7_200i64..7_200, 0i64..1_000_000).prop_map(|(zone, second, near, by, micros)| {
        let second = if near { change_after(zone, second) + by } else { second };
        (zone, Timestamp::from_micros(second * 1_000_000 + micros))
    })
}

/// The second of the next change of the clocks within two years, or the same second where they are never put.
fn change_after(zone: Tz, second: i64) -> i64 {
    let offset_at = |second: i64| offset(&zone, DateTime::from_timestamp(second, 0).unwrap().naive_utc());
    let day = 86_400;
    let Some(before) = (0..730)
        .map(|n| second + n * day)
        .find(|at| offset_at(*at) != offset_at(at + day))
    else {
        return second;
    };
    let (mut early, mut late) = (before, before + day);
    while late - early > 1 {
        let middle = i64::midpoint(early, late);
        if offset_at(middle) == offset_at(before) {
            early = middle
        } else {
            late = middle
        }
    }
    late
}

fn wall(zone: Tz, at: Timestamp) -> String {
    let at = at.to_datetime().unwrap().with_timezone(&zone);
    at.format("%Y-%m-%d %H:%M:%S%.6f").to_string()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_shown_reads_back_as_the_same_moment((zone, moment) in moment_of_zone()) {
        prop_assert_eq!(at(&shown(&zone, moment)), moment);
        prop_assert_eq!(shown(&zone, moment).parse::<TimeArg>().unwrap(), TimeArg::Zoned(TimePoint::At(moment)));
    }

    #[test]
    fn a_time_on_the_wall_is_its_moment_or_is_refused_by_name((zone, moment) in moment_of_zone()) {
        match read(zone, &wall(zone, moment)) {
            Ok(read) => prop_assert_eq!(read, moment),
            Err(BadTime::Twice { early, late, .. }) => {
                prop_assert!([at(&early), at(&late)].contains(&moment), "{early} {late}");
                prop_assert!(at(&early) < at(&late));
                prop_assert_eq!(wall(zone, at(&early)), wall(zone, at(&late)));
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn times_that_clocks_skip_or_show_twice_are_those_of_the_zone_data((zone, moment) in moment_of_zone()) {
        let wall = moment.to_datetime().unwrap().naive_utc();
        let read = super::moment(&zone, wall).map(|utc| Timestamp::from(utc.and_utc()));
        match (zone.from_local_datetime(&wall), read) {
            (LocalResult::Single(known), read) => {
                prop_assert_eq!(read, Ok(Timestamp::from(known.with_timezone(&Utc))));
            }
            (LocalResult::Ambiguous(..), Err(BadTime::Twice { .. })) => {}
            (LocalResult::None, Err(BadTime::Skipped { early, late, .. })) => {
                let show = |text: &str| self::wall(zone, at(text));
                let typed = wall.format("%Y-%m-%d %H:%M:%S%.6f").to_string();
                prop_assert!(show(&early) < typed && typed < show(&late), "{early} {typed} {late}");
            }
            (known, read) => prop_assert!(false, "{known:?} {read:?}"),
        }
    }

    #[test]
    fn a_day_begins_with_its_first_moment((zone, moment) in moment_of_zone()) {
        let day = &wall(zone, moment)[..10];
        let first = read(zone, day).unwrap();
        prop_assert_eq!(&wall(zone, first)[..10], day);
        prop_assert!(first <= moment);
        let before = Timestamp::from_micros(first.micros() - 1);
        prop_assert!(&wall(zone, before)[..10] < day, "{}", wall(zone, before));
    }

    #[test]
    fn no_text_is_too_strange_to_be_refused(text in "\\PC{0,40}", zone in zone()) {
        if let Ok(time) = text.parse::<TimeArg>() {
            let _ = time.within(&zone, at("2026-11-21T10:00:00Z"));
        }
    }

    #[test]
    fn texts_that_are_nearly_times_are_times_or_refused(text in "[0-9]{3,5}[-/][0-9]{1,2}-[0-9]{1,3}([T ][0-9:. ]{0,16})?", zone in zone()) {
        if let Ok(time) = text.parse::<TimeArg>() {
            let read = time.within(&zone, at("2026-11-21T10:00:00Z"));
            prop_assert!(text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-', "{text} {read:?}");
        }
    }
}

#[test]
fn a_skipped_hour_is_refused_with_both_readings() {
    let refused = read(Tz::Europe__Berlin, "2026-03-29 02:30").unwrap_err().to_string();
    assert_eq!(
        refused,
        "clocks skip 2026-03-29 02:30:00 in this zone; write 2026-03-29T01:30:00+01:00 or 2026-03-29T03:30:00+02:00 (or give --utc)"
    );
}

#[test]
fn a_doubled_hour_is_refused_with_both_readings() {
    let refused = read(Tz::America__New_York, "2026-11-01T01:30:00.5")
        .unwrap_err()
        .to_string();
    assert_eq!(
        refused,
        "clocks show 2026-11-01 01:30:00.500 twice in this zone; write 2026-11-01T01:30:00.500-04:00 or 2026-11-01T01:30:00.500-05:00 (or give --utc)"
    );
}

#[test]
fn half_an_hour_and_a_whole_day_are_skipped_too() {
    assert!(matches!(
        read(Tz::Australia__Lord_Howe, "2026-10-04 02:15"),
        Err(BadTime::Skipped { .. })
    ));
    assert_eq!(
        read(Tz::Australia__Lord_Howe, "2026-10-04 02:30"),
        Ok(at("2026-10-03T15:30:00Z"))
    );
    assert!(matches!(
        read(Tz::Pacific__Apia, "2011-12-30 12:00"),
        Err(BadTime::Skipped { .. })
    ));
    assert_eq!(
        read(Tz::Pacific__Apia, "2011-12-30"),
        Ok(at("2011-12-30T10:00:00Z")),
        "the day that was not"
    );
}

#[test]
fn a_day_without_a_midnight_begins_when_clocks_are_put() {
    assert_eq!(read(Tz::Africa__Cairo, "2026-04-24"), Ok(at("2026-04-23T22:00:00Z")));
    assert!(matches!(
        read(Tz::Africa__Cairo, "2026-04-24 00:30"),
        Err(BadTime::Skipped { .. })
    ));
}

#[test]
fn leap_days_are_days_of_leap_years_only() {
    for (text, expected) in [
        ("2024-02-29", Some("2024-02-29T00:00:00Z")),
        ("2000-02-29 12:00", Some("2000-02-29T12:00:00Z")),
        ("2024-02-29T23:59:59.999999", Some("2024-02-29T23:59:59.999999Z")),
        ("2026-02-29", None),
        ("1900-02-29", None),
        ("2100-02-29 12:00", None),
        ("2024-02-30", None),
    ] {
        assert_eq!(read(Tz::UTC, text).ok(), expected.map(at), "{text}");
    }
}

#[test]
fn a_time_of_day_is_one_of_the_zones_today() {
    // It is 23:30 UTC: the 22nd in Berlin already.
    assert_eq!(read(Tz::Europe__Berlin, "00:10"), Ok(at("2026-11-21T23:10:00Z")));
    assert_eq!(read(Tz::UTC, "14:30:05.25"), Ok(at("2026-11-21T14:30:05.25Z")));
    assert_eq!(read(Tz::America__New_York, "18:00"), Ok(at("2026-11-21T23:00:00Z")));
}

#[test]
fn times_with_a_zone_and_ages_need_none() {
    for zone in ZONES {
        assert_eq!(read(zone, "2026-03-29T02:30:00+01:00"), Ok(at("2026-03-29T01:30:00Z")));
    }
    assert!(matches!("7d".parse(), Ok(TimeArg::Zoned(TimePoint::Ago(_)))));
}

#[test]
fn loose_texts_are_refused() {
    for text in [
        "",
        "yesterday",
        "2026-11",
        "26-11-21",
        "2026-1-2",
        "+2026-11-21",
        "2026-11-21T",
        "2026-11-21 7:30",
        "24:00",
        "12:60",
        "12:30:60",
        "12:30.5",
        "12:30:00.",
        "12:30:00.1234567890",
        "2026-11-21  14:30",
        "2026-11-21 14:30 ",
        "٢٠٢٦-١١-٢١",
        "-1h",
        "1h ago",
    ] {
        assert_eq!(text.parse::<TimeArg>(), Err(BadTime::Text(text.to_owned())));
    }
}

#[test]
fn moments_outside_the_calendar_are_refused() {
    assert!(matches!(read(Tz::UTC, "0000-01-01"), Err(BadTime::Range(_))));
    assert!(matches!(
        read(Tz::Asia__Kathmandu, "0001-01-01"),
        Err(BadTime::Range(_))
    ));
    assert!(read(Tz::UTC, "9999-12-31 23:59:59.999999").is_ok());
    assert!(matches!(
        read(Tz::America__New_York, "9999-12-31 23:59"),
        Err(BadTime::Range(_))
    ));
}

#[test]
fn an_offset_with_seconds_is_shown_in_utc() {
    let old = at("1880-01-01T00:00:00Z");
    assert_eq!(shown(&Tz::Europe__Berlin, old), old.to_string());
    assert_eq!(
        shown(&Tz::Europe__Berlin, at("2026-07-01T10:00:00Z")),
        "2026-07-01T12:00:00.000000+02:00"
    );
    assert_eq!(
        shown(&Tz::Europe__Dublin, at("2026-01-01T10:00:00Z")),
        "2026-01-01T10:00:00.000000Z"
    );
}
