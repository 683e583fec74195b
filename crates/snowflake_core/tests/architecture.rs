//! Imports go in one direction: in the core and in the extension, no module imports one that imports it. A module is a
//! file, or a folder with all its files.

#![cfg(not(loom))]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

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

/// A cycle in the graph, as the modules on it.
fn circle(graph: &Graph) -> Option<Vec<String>> {
    fn walk<'a>(graph: &'a Graph, module: &'a str, path: &mut Vec<&'a str>) -> Option<Vec<String>> {
        if let Some(at) = path.iter().position(|other| *other == module) {
            return Some(path[at..].iter().map(|module| (*module).to_owned()).collect());
        }
        path.push(module);
        let found = graph[module].iter().find_map(|next| walk(graph, next, path));
        path.pop();
        found
    }
    graph.keys().find_map(|module| walk(graph, module, &mut Vec::new()))
}

fn sources() -> [std::path::PathBuf; 2] {
    let core = Path::new(env!("CARGO_MANIFEST_DIR"));
    [core.join("src"), core.join("../../src")]
}

#[test]
fn no_module_imports_one_that_imports_it() {
    for source in sources() {
        let graph = imports(&source);
        assert!(
            graph.values().map(BTreeSet::len).sum::<usize>() > 20,
            "the code has changed its form: {graph:?}"
        );
        assert_eq!(circle(&graph), None, "{}", source.display());
    }
}

/// The types with which the parts talk to one another depend on no part, and decisions on neither memory nor disk.
#[test]
fn what_lies_at_the_bottom_knows_nothing_above_it() {
    let [core, _] = sources();
    let graph = imports(&core);
    for (module, allowed) in [
        ("layout", vec![]),
        ("workers", vec!["layout"]),
        ("refusal", vec!["layout"]),
        ("config", vec!["layout", "workers"]),
        ("lease", vec![]),
        ("host", vec!["refusal"]),
        ("ladder", vec!["config", "layout", "refusal"]),
        ("ledger", vec!["config", "layout", "sync"]),
        ("permit", vec![]),
        ("lane", vec!["ledger", "permit", "sync"]),
        ("clock_watch", vec!["host", "sync"]),
    ] {
        let allowed: BTreeSet<String> = allowed.into_iter().map(str::to_owned).collect();
        let known: BTreeSet<&String> = graph[module].difference(&allowed).collect();
        assert!(known.is_empty(), "{module} knows {known:?}");
    }
}

/// Only these files hold atomics.
#[test]
fn atomics_have_few_owners() {
    let [core, _] = sources();
    let owners = ["ledger", "lane", "memory", "clock_watch", "sync"];
    for module in imports(&core).keys().filter(|module| !owners.contains(&module.as_str())) {
        let code = [core.join(format!("{module}.rs")), core.join(module)];
        let code = code.iter().filter(|path| path.exists()).map(|path| code_of(path)).collect::<String>();
        // The generator passes the rings to its lanes.
        let code = code.replace("AtomicU64", "");
        assert!(!code.contains("Atomic") && !code.contains("Ordering::"), "{module} touches atomics");
    }
}
