//! The picture of an ID in README and manual has the numbers of a server with the defaults.

use super::pages::read;
use regex::Regex;
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::column;
use std::collections::BTreeSet;

/// Its description, and the texts in it that have a digit. t, w and s are the bits of time, worker and sequence.
const TEXTS: &str = "
    SELECT unnest(ARRAY[
        format('From the highest bit to the lowest: one bit that is always 0, %s bits of time (bits 62 to %s), %s bits of
                worker (bits %s to %s), %s bits of sequence (bits %s to 0). The example %s is tick %s since the epoch,
                worker %s, sequence %s.', t, w + s, w, w + s - 1, s, s, s - 1, id, tick, worker_id, sequence),
        'The bits of an ID in the default layout, ' || layout,
        '63', '62', (w + s)::text, (w + s - 1)::text, s::text, (s - 1)::text, '0',
        t || ' bits', w || ' bits', s || ' bits',
        format('ticks of %s ms since the epoch, %s UTC;', tick_ms, to_char(epoch, 'YYYY-MM-DD HH24:MI')),
        'lasts until ' || to_char(expires_at, 'YYYY-MM-DD'),
        to_char(1 << w, 'FM9,999') || ' workers:', format('%s servers × %s', (1 << w) / lanes, lanes),
        to_char(1 << s, 'FM9,999') || ' IDs a tick',
        id::text, tick::text, to_char(created_at, 'YYYY-MM-DD HH24:MI:SS.MS') || ' UTC',
        worker_id::text, 'of server ' || snowflake_server(id), sequence::text, 'counted from 0 in each tick',
        format('id = time × 2%s + worker × 2%s + sequence', translate((w + s)::text, '0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'),
            translate(s::text, '0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))])
    FROM (SELECT 362388381519879) AS example (id), snowflake_decode(id), snowflake_server_layout() AS of (layout, tick_ms, epoch),
        (SELECT expires_at FROM snowflake_status) AS status, (SELECT count(*) AS lanes FROM snowflake_workers) AS workers,
        (SELECT bits[1] AS t, bits[2] AS w, bits[3] AS s
         FROM string_to_array((SELECT boot_val FROM pg_settings WHERE name = 'snowflake_id.layout'), '/') AS texts,
             CAST(texts AS integer[]) AS bits) AS bits,
        div((extract(epoch FROM created_at - epoch) * 1000)::numeric, tick_ms) AS tick";

#[test]
fn the_picture_of_an_id_has_the_numbers_of_the_defaults() {
    let server = Server::builder().setting("timezone", "UTC").start_with_extension();
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected: Vec<String> = column(&mut server.connect(), TEXTS);
    let expected: BTreeSet<String> = expected.iter().map(|text| one_line(text)).collect();
    let picture = one_line(&read("docs/layout.svg"));
    let texts = Regex::new("<(?:text|desc)[^>]*>([^<]*[0-9²][^<]*)</").expect("a pattern");
    let drawn: BTreeSet<String> =
        texts.captures_iter(&picture).map(|text| text[1].trim().to_owned()).collect();
    assert_eq!(drawn, expected);
    let title = "The bits of an ID in the default layout, ";
    assert!(
        expected.iter().any(|text| text.starts_with(title) && picture.contains(&format!("{text}</title>")))
    );
}
