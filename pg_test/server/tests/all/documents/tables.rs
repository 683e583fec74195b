//! The manual's tables of settings and layouts, and lists of functions and views, are those of the extension, and so are
//! the settings in files that come with it.

use super::pages::{code, conf, read, table, tables};
use regex::Regex;
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::{column, next, one};
use std::collections::{BTreeMap, BTreeSet};
use yaml_rust2::YamlLoader;

// ---- settings ----

/// The packages' configuration file: no line of it overrides one of the server's, and the values in its comments are the
/// defaults.
#[test]
fn the_example_of_the_settings_has_the_defaults() {
    let text = read("packaging/snowflake_id.conf");
    assert_eq!(conf(&text), BTreeMap::new());

    let commented: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter(|line| !line.starts_with(' '))
        .collect();
    let mut commented = conf(&commented.join("\n"));
    assert_eq!(commented.remove("shared_preload_libraries").as_deref(), Some("snowflake_id"));
    assert!(commented.len() >= 8, "{commented:?}");
    let of_the_server = settings_of_the_server();
    for (name, value) in commented {
        let actual = of_the_server.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no {name}"));
        let value = match (name.as_str(), actual[1].as_str()) {
            ("snowflake_id.worker_id", _) => {
                assert_eq!(value, "", "nobody has a worker by default");
                continue;
            }
            (_, "integer") => count(&value).to_string(),
            _ => value,
        };
        assert_eq!(value, actual[3], "default of {name}");
    }
}

/// The parameters of a Cluster, which CloudNativePG accepts only as texts.
#[test]
fn the_manifests_have_settings_that_exist() {
    let of_the_server = settings_of_the_server();
    for file in ["extension-image.yaml", "image-catalog.yaml"] {
        let text = read(&format!("packaging/cloudnative-pg/{file}"));
        let documents = YamlLoader::load_from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
        let cluster = documents.iter().find(|document| document["kind"].as_str() == Some("Cluster"));
        let postgresql = &cluster.unwrap_or_else(|| panic!("{file}: no Cluster"))["spec"]["postgresql"];
        assert_eq!(postgresql["shared_preload_libraries"][0].as_str(), Some("snowflake_id"), "{file}");
        let parameters =
            postgresql["parameters"].as_hash().unwrap_or_else(|| panic!("{file}: no parameters"));
        assert!(parameters.len() >= 2, "{file}");
        for (name, value) in parameters {
            let known = of_the_server.iter().any(|row| Some(row[0].as_str()) == name.as_str());
            assert!(known && value.as_str().is_some(), "{file}: {name:?}: {value:?}");
        }
    }
}

/// As PostgreSQL counts it: an integer, or a length of time in milliseconds.
fn count(text: &str) -> i64 {
    let digits = text.trim_start_matches('-').trim_start_matches(|c: char| c.is_ascii_digit());
    let number: i64 =
        text[..text.len() - digits.len()].parse().unwrap_or_else(|_| panic!("{text} is no number"));
    let unit = match digits {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        other => panic!("{other} is no unit"),
    };
    number * unit
}

/// Name, type, unit, default, lowest and highest value, context, and the values of an enum.
fn settings_of_the_server() -> Vec<Vec<String>> {
    let server = Server::builder().start_with_extension();
    let query = "SELECT ARRAY[name, vartype, coalesce(unit, ''), boot_val, coalesce(min_val, ''),
                        coalesce(max_val, ''), context, coalesce(array_to_string(enumvals, ', '), '')]
                 FROM pg_settings WHERE name LIKE 'snowflake\\_id.%'";
    column(&mut server.connect(), query)
}

fn plain(cell: &str) -> String {
    cell.replace('`', "")
}

/// A table of settings has all of them, each with its default and with the moment at which a change takes effect.
fn assert_has_all(stated: &[Vec<String>], of_the_server: &[Vec<String>], default: usize, changed_by: usize) {
    let names = |rows: &[Vec<String>]| rows.iter().map(|row| plain(&row[0])).collect::<BTreeSet<_>>();
    assert_eq!(names(stated), names(of_the_server));
    for row in stated {
        let name = plain(&row[0]);
        let actual = of_the_server.iter().find(|row| row[0] == name).expect("compared above");
        let value = plain(&row[default]);
        let value = if actual[1] == "integer" { count(&value).to_string() } else { value };
        assert_eq!(value, actual[3], "default of {name}");
        let effect = if actual[6] == "postmaster" { "restart" } else { "reload" };
        assert_eq!(row[changed_by], effect, "{name} is changed by");
    }
}

#[test]
fn the_table_of_settings_is_that_of_the_server() {
    let page = read("docs/settings.md");
    let stated = table(&page, &["name", "type", "default", "range", "changed by"]);
    let of_the_server = settings_of_the_server();
    assert_has_all(&stated, &of_the_server, 2, 4);

    for row in &stated {
        let [name, kind, range] = [0, 1, 3].map(|i| plain(&row[i]));
        let actual = of_the_server.iter().find(|row| row[0] == name).expect("compared above");
        let [vartype, min, max, values] = [1, 4, 5, 7].map(|i| actual[i].as_str());

        assert_eq!(kind, if vartype == "string" { "text" } else { vartype }, "type of {name}");
        match (vartype, range.as_str()) {
            // Its bounds follow from other settings; PostgreSQL knows only those of the type.
            ("integer", "by layout") => assert_eq!(max, i32::MAX.to_string(), "{name}"),
            ("integer", range) => {
                let ends: Vec<&str> = range.split(", ").flat_map(|part| part.split(" to ")).collect();
                let (first, last) = (count(ends[0]), count(ends[ends.len() - 1]));
                assert_eq!([first.to_string(), last.to_string()], [min, max], "range of {name}");
            }
            ("enum", range) => assert_eq!(range, values, "values of {name}"),
            _ => {}
        }
    }
}

#[test]
fn every_setting_has_a_section() {
    let page = read("docs/settings.md");
    for setting in settings_of_the_server() {
        let short = setting[0].trim_start_matches("snowflake_id.");
        assert!(page.contains(&format!("\n### `{short}`\n\n")), "no section on {short}");
    }
}

#[test]
fn the_table_of_layouts_is_right() {
    for row in tables(&["`layout`", "`tick`", "lasts for"]) {
        let (layout, tick) = (code(&row[0]).remove(0), code(&row[1]).remove(0));
        // On a server of its own, because another layout closes one that has generated IDs.
        let server = Server::builder()
            .setting("snowflake_id.layout", &layout)
            .setting("snowflake_id.tick", &tick)
            .setting("snowflake_id.backup_workers", "3")
            .start_with_extension();
        let mut session = server.connect();
        assert!(next(&mut session) > 0, "{layout}");
        let years: String = one(
            &mut session,
            "SELECT round(extract(epoch FROM expires_at - epoch) / 86400 / 365.2425, 1)::text FROM snowflake_status",
        );
        assert_eq!(row[2], format!("{years} years"), "{layout}");

        let number = |text: &str| text.replace(',', "").parse::<i64>().expect("a number");
        let bits: Vec<Vec<u32>> = layout
            .split('/')
            .map(|field| field.split('+').map(|bits| bits.parse().expect("bits")).collect())
            .collect();
        let workers: Vec<i64> = row[3]
            .split(' ')
            .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
            .map(number)
            .collect();
        let of_bits: Vec<i64> = bits[1].iter().rev().map(|bits| 1 << bits).collect();
        assert_eq!(workers, of_bits, "workers of {layout}");
        assert_eq!(number(&row[4]), (1 << bits[2][0]) * 1_000 / count(&tick), "IDs a second of {layout}");
        if row[5].starts_with("53 bits") {
            assert_eq!(bits.iter().flatten().sum::<u32>(), 53, "{layout}");
        }
    }
}

#[test]
fn the_table_of_backup_workers_is_right() {
    let mut server = Server::builder().start_with_extension();
    for row in table(&read("docs/fleet.md"), &["`backup_workers`", "`worker_id`", "servers"]) {
        let range: Vec<&str> = row[1].split(" to ").collect();
        server.set("snowflake_id.backup_workers", &row[0]);
        server.set("snowflake_id.worker_id", range[1]);
        server.restart();
        let mut session = server.connect();
        assert!(next(&mut session) > 0, "{row:?}");
        let highest: i64 = range[1].parse().expect("a number");
        assert_eq!(row[2].replace(',', ""), (highest + 1).to_string());
        let lanes: i64 = one(&mut session, "SELECT count(*) FROM snowflake_workers");
        assert_eq!(row[3], lanes.to_string(), "{row:?}");
        // No other home worker would have room above the highest.
        let most: i32 = one(&mut session, "SELECT max(worker_id) FROM snowflake_workers");
        assert!((1_024 - lanes..1_024).contains(&most.into()), "{row:?}: {most}");
    }
}

// ---- functions and views ----

/// The reference, with a space in place of each line break and its indentation.
fn reference() -> String {
    read("docs/sql.md").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// With signatures as psql's `\df` prints them.
#[test]
fn the_lists_of_functions_are_those_of_the_extension() {
    let server = Server::builder().setting("timezone", "UTC").start_with_extension();
    // A function with OUT parameters returns "record", and its parameters say more.
    let query = "
        SELECT ARRAY[proname || '(' || regexp_replace(pg_get_function_arguments(oid), '(^|, )OUT .*', '') || ')',
                     CASE pg_get_function_result(oid) WHEN 'record' THEN '(' || (
                         SELECT string_agg(proargnames[i] || ' ' || format_type(proallargtypes[i], NULL), ', '
                                           ORDER BY i)
                         FROM generate_subscripts(proargnames, 1) AS i WHERE proargmodes[i] = 'o') || ')'
                     ELSE pg_get_function_result(oid) END]
        FROM pg_proc WHERE oid IN (SELECT objid FROM pg_depend WHERE deptype = 'e'
            AND classid = 'pg_proc'::regclass
            AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_id'))
        AND (prorettype <> 'trigger'::regtype OR proname = 'snowflake_refuse_own_worker')
        AND pronamespace <> 'snowflake_internal'::regnamespace"; // only for the others
    let actual: Vec<Vec<String>> = column(&mut server.connect(), query);
    let short = |text: &str| text.replace("timestamp with time zone", "timestamptz");
    let actual: BTreeSet<(String, String)> =
        actual.iter().map(|row| (short(&row[0]), short(&row[1]))).collect();

    let signature = Regex::new(r"`(snowflake_[a-z0-9_]+\([^`]*\))` → `([^`]+)`").expect("a pattern");
    let reference = reference();
    let stated = signature.captures_iter(&reference).map(|found| (found[1].to_owned(), found[2].to_owned()));
    assert_eq!(stated.collect::<BTreeSet<_>>(), actual);
}

#[test]
fn the_lists_of_the_views_have_every_column() {
    let server = Server::builder().start_with_extension();
    let reference = reference();
    for view in ["snowflake_status", "snowflake_workers", "snowflake_fleet", "snowflake_fleet_capacity"] {
        let query = format!(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = '{view}'::regclass AND attnum > 0"
        );
        let actual: BTreeSet<String> = column(&mut server.connect(), &query).into_iter().collect();
        let (_, rest) = reference.split_once(&format!("View `{view}`, one row")).expect("the view");
        let list = rest.split(" ## ").next().and_then(|rest| rest.split(" View ").next()).expect("a list");
        let items = list.split(" - `").skip(1).map(|item| item.split("`: ").next().unwrap_or_default());
        let stated: BTreeSet<String> =
            items.flat_map(|names| names.split("`, `")).map(str::to_owned).collect();
        assert_eq!(stated, actual, "{view}");
    }
}

#[test]
fn the_reference_has_every_object_of_the_extension() {
    let server = Server::builder().start_with_extension();
    let objects: Vec<String> = column(
        &mut server.connect(),
        "SELECT DISTINCT substring(pg_describe_object(d.classid, d.objid, 0) FROM 'snowflake_\\w+') AS name
         FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
         WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass AND e.extname = 'snowflake_id'
             -- No helpers.
             AND (pg_identify_object(d.classid, d.objid, 0)).schema = 'public'
         ORDER BY name",
    );
    assert!(objects.len() > 30, "{objects:?}");
    let reference = read("docs/sql.md");
    let is_named = |name: &&String| ["(", "`"].iter().any(|end| reference.contains(&format!("`{name}{end}")));
    let missing: Vec<&String> = objects.iter().filter(|name| !is_named(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
