//! Each function that PostgreSQL calls either has pgrx's guard, or calls no function of PostgreSQL. Without the guard, an
//! error that PostgreSQL raises becomes a panic that leaves the function, and ends the server.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The functions without a guard, and why they have none.
const UNGUARDED: [(&str, &str); 7] = [
    ("exit_child", "a signal handler of a process that runs no code of PostgreSQL"),
    ("process_utility", "its own errors and those of the statement pass through it: it has nothing to drop"),
    ("transaction_event", "runs at the end of each transaction, and only clears a variable"),
    ("snowflake_nextval_hot", "the hot path; its wrapper does the rest"),
    ("snowflake_nextval_support_hot", "runs in each plan of a call; its wrapper does the rest"),
    ("$hot", "readers of a field; their wrapper does the rest"),
    ("$name", "returns a constant"),
];

type Functions = BTreeMap<String, Vec<Function>>;

/// A function of the product's own.
struct Function {
    file: PathBuf,
    is_called_by_postgresql: bool,
    /// It has pgrx's guard, or a wrapper with one.
    is_guarded: bool,
    body: String,
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let files = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
}

/// The text up to the brace that closes the first one.
fn block(text: &str) -> &str {
    let mut depth = 0;
    let end = text.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '{') - i32::from(*c == '}');
        *c == '}' && depth == 0
    });
    &text[..end.map_or(text.len(), |(at, _)| at + 1)]
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The functions of a file by their names, with the attributes above them.
fn functions(file: &Path, found: &mut Functions) {
    let text = fs::read_to_string(file).expect("a source");
    let lines: Vec<&str> = text.lines().map(|line| line.split(" // ").next().expect("a line")).collect();
    let mut attributes = String::new();
    for (at, line) in lines.iter().enumerate() {
        let line = line.trim_start();
        let (head, rest) = line.split_once("fn ").unwrap_or((line, ""));
        let is_function = !rest.is_empty() && head.split_whitespace().all(|word| !word.starts_with('/'));
        let words = ["pub", "pub(super)", "pub(crate)", "unsafe", "extern", "\"C\"", "\"C-unwind\"", "const"];
        if is_function && head.split_whitespace().all(|word| words.contains(&word)) {
            let name: String = rest.chars().take_while(|c| is_name(*c) || *c == '$').collect();
            let code = lines[at..].iter().filter(|line| !line.trim_start().starts_with("//"));
            let text: String = code.map(|line| format!("{line}\n")).collect();
            let is_declared = text.find(';').unwrap_or(usize::MAX) < text.find('{').unwrap_or(usize::MAX);
            let is_guarded = attributes.contains("#[pg_guard]") || attributes.contains("#[pg_extern");
            let is_called_by_postgresql = head.contains("extern");
            let body = if is_declared { String::new() } else { block(&text).to_owned() };
            let file = file.to_owned();
            found.entry(name).or_default().push(Function { file, is_called_by_postgresql, is_guarded, body });
        }
        // What the macro's arguments name belongs to the functions that it makes.
        if line.starts_with("hot_reader!") {
            let body = block(&lines[at..].join("\n")).to_owned();
            let (file, is_called_by_postgresql, is_guarded) = (file.to_owned(), true, false);
            let function = Function { file, is_called_by_postgresql, is_guarded, body };
            found.entry("$hot".to_owned()).or_default().push(function);
        }
        let goes_on = line.starts_with('#') || line.starts_with("//") || !attributes.is_empty();
        attributes = if goes_on && !line.is_empty() && !line.starts_with('}') && rest.is_empty() {
            attributes + line + "\n"
        } else {
            String::new()
        };
    }
}

/// The names in a text that `is_one` accepts: a name with the text before and after it.
fn names(text: &str, is_one: impl Fn(&str, &str) -> bool) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut rest = 0;
    while let Some(begin) = text[rest..].find(is_name).map(|at| rest + at) {
        let end = text[begin..].find(|c| !is_name(c)).map_or(text.len(), |at| begin + at);
        if is_one(&text[..begin], &text[end..]) {
            found.insert(&text[begin..end]);
        }
        rest = end;
    }
    found
}

/// The module in a file: of `mod.rs`, that of the folder.
fn module_of(file: &Path) -> Cow<'_, str> {
    let file = if file.ends_with("mod.rs") { file.parent().expect("a folder") } else { file };
    file.file_stem().expect("a name").to_string_lossy()
}

/// The ways from an unguarded function to functions of PostgreSQL, also by functions of the product. It tells these apart
/// by name and file alone, so it may find too many.
fn reached(
    name: &str,
    function: &Function,
    all: &Functions,
    seen: &mut BTreeSet<String>,
) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if function.is_guarded || !seen.insert(format!("{}:{name}", function.file.display())) {
        return found;
    }
    let body = function.body.as_str();
    let is_of_postgresql = |before: &str, after: &str| before.ends_with("pg_sys::") && after.starts_with('(');
    found.extend(names(body, is_of_postgresql).into_iter().map(|it| format!("{name} -> {it}")));
    // Methods do not count: those of the core and of the standard library call nothing of PostgreSQL on these paths.
    let is_named = |before: &str, _: &str| !before.ends_with(['.', '\'']) && !before.ends_with("pg_sys::");
    for other in names(body, is_named) {
        // Called, or passed on to be called, and no variable.
        let is_called = [format!("{other}("), format!("({other})"), format!(", {other}")];
        let is_called = is_called.iter().any(|it| body.contains(it)) && !body.contains(&format!("{other}: "));
        for that in all.get(other).into_iter().flatten() {
            let module = module_of(&that.file);
            if that.file == function.file && is_called || body.contains(&format!("{module}::{other}")) {
                found.extend(reached(other, that, all, seen).iter().map(|way| format!("{name} -> {way}")));
            }
        }
    }
    found
}

#[test]
fn unguarded_functions_call_nothing_that_raises() {
    let mut all = Functions::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src");
    sources(&source).iter().for_each(|file| functions(file, &mut all));
    let is_unguarded = |those: &Vec<Function>| {
        those.iter().any(|it| it.is_called_by_postgresql && !it.is_guarded && !it.body.is_empty())
    };
    let unguarded: Vec<&String> =
        all.iter().filter(|(_, those)| is_unguarded(those)).map(|it| it.0).collect();
    let listed: BTreeSet<&str> = UNGUARDED.iter().map(|(name, _)| *name).collect();
    assert_eq!(unguarded.iter().map(|name| name.as_str()).collect::<BTreeSet<_>>(), listed);
    let guarded = all.values().flatten().filter(|it| it.is_called_by_postgresql && it.is_guarded).count();
    let texts = sources(&source).into_iter().map(|file| fs::read_to_string(file).expect("a source"));
    let guards: usize = texts.map(|text| text.matches("#[pg_guard]").count()).sum();
    assert!(guards > 10 && guarded == guards, "the code has changed its form: {guarded} of {guards} found");
    for name in unguarded {
        let ways = all[name].iter().flat_map(|it| reached(name, it, &all, &mut BTreeSet::new()));
        let ways: Vec<String> = ways.collect();
        assert!(ways.is_empty(), "{name} has no guard, and may call {ways:#?}");
    }
}
