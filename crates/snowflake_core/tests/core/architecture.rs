//! The diagram in ARCHITECTURE.md is true: imports point downwards in it, and nothing is missing. A module is a file,
//! or a folder with all its files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Graph = BTreeMap<String, BTreeSet<String>>;

/// The modules of a crate, each with the modules that its code names after `crate::`.
fn imports(source: &Path) -> Graph {
    let mut graph = Graph::new();
    for entry in fs::read_dir(source).expect("the sources").flatten() {
        let path = entry.path();
        let module = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if module != "lib" {
            let code = code_of(&path);
            graph.insert(module.clone(), named(&code).into_iter().filter(|other| *other != module).collect());
        }
    }
    let modules: BTreeSet<String> = graph.keys().cloned().collect();
    graph.values_mut().for_each(|named| named.retain(|name| modules.contains(name)));
    graph
}

/// The code of a file, or of all files in a folder, without comments.
fn code_of(path: &Path) -> String {
    if path.is_dir() {
        return fs::read_dir(path).expect("a folder").flatten().map(|entry| code_of(&entry.path())).collect();
    }
    let text = fs::read_to_string(path).expect("a source file");
    text.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
}

/// The names after `crate::`: one, or several in braces.
fn named(code: &str) -> BTreeSet<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(list) => {
                let list = &list[..list.find("};").expect("the end of a list")];
                found.extend(list.split(',').map(|item| name(item.trim())));
            }
            None => {
                found.insert(name(rest));
            }
        }
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A part of the diagram: a folder, and the names in it in their order.
struct Part {
    folder: String,
    names: Vec<String>,
}

/// The diagram in ARCHITECTURE.md: a folder at the beginning of a line, and names in the lines below it that are
/// indented. Two spaces stand between names, and more before what is said of them.
fn diagram() -> Vec<Part> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let text = text.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the diagram");
    let is_name =
        |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let mut parts: Vec<Part> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("  ") {
            Some(line) => {
                let words = line.split("  ").map(|word| word.trim_end_matches('/'));
                let names = words.take_while(|word| !word.is_empty()).filter(is_name).map(str::to_owned);
                parts.last_mut().expect("a folder above").names.extend(names);
            }
            None => {
                let folders = line.split_whitespace().filter(|word| word.ends_with('/'));
                parts.extend(folders.map(|folder| Part { folder: folder.to_owned(), names: Vec::new() }));
            }
        }
    }
    parts
}

/// The folder of a part's sources.
fn sources(part: &Part) -> PathBuf {
    let folder = root().join(&part.folder);
    if part.folder == "src/" { folder } else { folder.join("src") }
}

#[test]
fn every_import_points_downwards_in_the_diagram() {
    let parts: Vec<Part> = diagram().into_iter().filter(|part| !part.names.is_empty()).collect();
    let folders: Vec<&str> = parts.iter().map(|part| part.folder.as_str()).collect();
    assert_eq!(folders, ["src/", "crates/snowflake_contact/", "crates/snowflake_core/"]);
    for (at, part) in parts.iter().enumerate() {
        let graph = imports(&sources(part));
        let place = |name: &str| part.names.iter().position(|other| other == name);
        assert_eq!(
            part.names.iter().collect::<BTreeSet<_>>(),
            graph.keys().collect::<BTreeSet<_>>(),
            "the names in the diagram, and the modules in {}",
            part.folder
        );
        for (module, used) in &graph {
            let upwards: Vec<&String> = used.iter().filter(|name| place(name) < place(module)).collect();
            assert!(upwards.is_empty(), "{}{module} uses {upwards:?}", part.folder);
        }
        let code = code_of(&sources(part));
        for above in &parts[..at] {
            let name = above.folder.trim_start_matches("crates/").trim_end_matches('/');
            assert!(!code.contains(&format!("{name}::")) || name == "src", "{} uses {name}", part.folder);
        }
    }
}

/// The files of a folder, each with its siblings that its code names after `super::` or `crate::FOLDER::`.
fn siblings(folder: &Path) -> Graph {
    let own = format!("crate::{}::", folder.file_name().expect("a name").to_string_lossy());
    let files = fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let mut graph: Graph = files
        .filter(|path| path.extension().is_some_and(|end| end == "rs") && !path.ends_with("mod.rs"))
        .map(|path| {
            let code = code_of(&path).replace("super::", "crate::").replace(&own, "crate::");
            (path.file_stem().expect("a name").to_string_lossy().into_owned(), named(&code))
        })
        .collect();
    let files: BTreeSet<String> = graph.keys().cloned().collect();
    graph.iter_mut().for_each(|(file, named)| named.retain(|name| files.contains(name) && name != file));
    graph
}

/// What is left when files that import none of the others are taken away, again and again.
fn circle(mut graph: Graph) -> BTreeSet<String> {
    while let Some(leaf) = graph.iter().find(|(_, used)| used.is_empty()).map(|(file, _)| file.clone()) {
        graph.remove(&leaf);
        for used in graph.values_mut() {
            used.remove(&leaf);
        }
    }
    graph.into_keys().collect()
}

#[test]
fn no_files_of_one_folder_import_each_other() {
    let mut found = 0;
    for crates in ["src", "crates/snowflake_contact/src", "crates/snowflake_core/src"] {
        for folder in fs::read_dir(root().join(crates)).expect("a folder").flatten() {
            if folder.path().is_dir() {
                let graph = siblings(&folder.path());
                found += graph.values().map(BTreeSet::len).sum::<usize>();
                assert_eq!(circle(graph), BTreeSet::new(), "a circle in {}", folder.path().display());
            }
        }
    }
    assert!(found > 20, "the code has changed its form; {found} imports");
}

#[test]
fn every_program_and_folder_of_code_has_its_place_in_the_diagram() {
    let folders: Vec<String> = diagram().into_iter().map(|part| part.folder).collect();
    let missing = folders.iter().filter(|folder| !root().join(folder).is_dir()).collect::<Vec<_>>();
    assert!(missing.is_empty(), "the diagram names {missing:?}");
    let workspace = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    let (_, members) = workspace.split_once("members = [").expect("its members");
    let members = members.split(']').next().into_iter().flat_map(|list| list.split('"').skip(1).step_by(2));
    let is_named = |member: &&str| folders.iter().any(|folder| format!("{member}/").starts_with(folder));
    let unnamed: Vec<&str> = members.filter(|member| !is_named(member)).collect();
    assert!(unnamed.is_empty(), "not in the diagram: {unnamed:?}");
}

/// The types with which the parts talk to one another depend on no part, and decisions on neither memory nor disk.
#[test]
fn what_lies_at_the_bottom_knows_nothing_above_it() {
    let graph = imports(&root().join("crates/snowflake_core/src"));
    for (module, allowed) in [
        ("layout", vec![]),
        ("workers", vec!["layout"]),
        ("refusal", vec!["layout"]),
        ("config", vec!["layout", "workers"]),
        ("lease", vec!["layout"]),
        ("platform", vec!["refusal"]),
        ("ladder", vec!["config", "layout", "refusal"]),
        ("ring", vec!["config", "layout", "sync"]),
        ("permit", vec![]),
        ("lane", vec!["ring", "permit", "sync"]),
        ("clock_watch", vec!["platform", "sync"]),
    ] {
        let allowed: BTreeSet<String> = allowed.into_iter().map(str::to_owned).collect();
        let known: BTreeSet<&String> = graph[module].difference(&allowed).collect();
        assert!(known.is_empty(), "{module} knows {known:?}");
    }
}

/// Only these files hold atomics.
#[test]
fn atomics_have_few_owners() {
    let core = root().join("crates/snowflake_core/src");
    let owners = ["ring", "lane", "memory", "clock_watch", "horizon", "sync"];
    for module in imports(&core).keys().filter(|module| !owners.contains(&module.as_str())) {
        let code = [core.join(format!("{module}.rs")), core.join(module)];
        let code = code.iter().filter(|path| path.exists()).map(|path| code_of(path)).collect::<String>();
        // The generator passes the rings to its lanes.
        let code = code.replace("AtomicU64", "");
        assert!(!code.contains("Atomic") && !code.contains("Ordering::"), "{module} touches atomics");
    }
}
