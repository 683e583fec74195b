//! The images of packaging/docker/Dockerfile: one is built and started where a container engine can fetch images. What
//! is in an extension image is laid out by hand, as the Dockerfile says.

use super::Package;
use crate::command::{read, run};
use anyhow::{Context, Result, ensure};
use snowflake_server_tests::wait_until;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const DOCKERFILE: &str = "packaging/docker/Dockerfile";

/// Lays the extension image out in `image`, out of the package's files.
///
/// # Errors
/// The Dockerfile copies what is not there, or not all that an image has to have.
pub fn lay_out(package: &Package, files: &Path, image: &Path) -> Result<()> {
    let dockerfile = fs::read_to_string(DOCKERFILE)?;
    let repository = std::env::current_dir()?;
    for (from, to) in copies(&dockerfile, "extension", &package.major) {
        let to = image.join(to.trim_start_matches('/'));
        // With a slash at its end, COPY's source is what is in the folder.
        let from = match from.strip_prefix("/files/") {
            Some(folder) => files.join(folder).join("."),
            None => repository.join(from.strip_prefix("/src/").with_context(|| format!("COPY {from}"))?),
        };
        fs::create_dir_all(&to)?;
        run(Command::new("cp").arg("-r").arg(from).arg(to))?;
    }
    let mut expected = BTreeSet::from(
        ["LICENSE", "crates.txt", "rust-std.html"].map(|file| format!("licenses/snowflake_id/{file}")),
    );
    for (folder, to) in [("usr/lib/postgresql", ""), ("usr/share/postgresql", "share/")] {
        let names = names_in(&files.join(folder).join(&package.major))?;
        expected.extend(names.into_iter().map(|name| format!("{to}{name}")));
    }
    let found = names_in(image)?;
    ensure!(found == expected, "the extension image has {found:#?}, not {expected:#?}");
    // The image is made of the package that scripts/package puts there.
    let line = "cp \"/build/packages/${PG_MAJOR}\"/*.deb /package/";
    ensure!(dockerfile.contains(line), "{DOCKERFILE} has no line {line}");
    let folder = Path::new("packages").join(&package.major);
    ensure!(
        package.file.parent().is_some_and(|parent| parent.ends_with(folder)),
        "{}",
        package.file.display()
    );
    println!("   an extension image has the files of the package");
    Ok(())
}

/// What a stage of the Dockerfile copies out of the build, and where to.
fn copies(dockerfile: &str, stage: &str, major: &str) -> Vec<(String, String)> {
    let end = format!(" AS {stage}");
    let lines = dockerfile.lines().skip_while(|line| !(line.starts_with("FROM ") && line.ends_with(&end)));
    let lines = lines.skip(1).take_while(|line| !line.starts_with("FROM "));
    let copies = lines.filter_map(|line| line.strip_prefix("COPY --from=build ")?.split_once(' '));
    let named = |path: &str| path.replace("${PG_MAJOR}", major);
    copies.map(|(from, to)| (named(from), named(to))).collect()
}

fn names_in(folder: &Path) -> Result<BTreeSet<String>> {
    let listed = read(Command::new("find").arg(folder).args(["-type", "f", "-printf", "%P\n"]))?;
    Ok(listed.lines().map(str::to_owned).collect())
}

/// Builds and starts PostgreSQL's image with the extension, where there is an engine that gets the image to begin with.
///
/// # Errors
/// The image cannot be built, or its server makes no IDs.
pub fn start(major: &str) -> Result<()> {
    let base = format!("postgres:{major}-bookworm");
    let works = |program: &&str| {
        let succeeds = |args: &[&str]| read(Command::new(program).args(args)).is_ok();
        succeeds(&["info"]) && succeeds(&["pull", &base])
    };
    let Some(engine) = ["docker", "podman"].into_iter().find(works) else {
        println!("   no image is built: no container engine here gets {base}");
        return Ok(());
    };
    let image = format!("snowflake_id-test:{major}");
    println!("   building the image with {engine}: about 10 minutes the first time");
    let mut build = Command::new(engine);
    build.args(["build", "--file", DOCKERFILE, "--tag", &image]);
    build.arg(format!("--build-arg=PG_MAJOR={major}")).arg(".");
    read(&mut build)?;
    let mut start = Command::new(engine);
    start.args(["run", "--detach", "--env=POSTGRES_PASSWORD=secret", &image]);
    start.args(["-c", "snowflake_id.worker_id=7"]);
    let container = read(&mut start)?.trim().to_owned();
    let made = std::panic::catch_unwind(|| worker_in(engine, &container));
    run(Command::new(engine).args(["rm", "--force", "--volumes", &container]))?;
    let worker = made.ok().context("the image's server makes no IDs")?;
    ensure!(worker == "7", "the image's server makes IDs of worker {worker}");
    println!("   the image makes IDs");
    Ok(())
}

/// The worker of an ID that the container makes. The server that prepares its data does not listen there.
fn worker_in(engine: &str, container: &str) -> String {
    let query = "SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS snowflake_id;
                 SELECT snowflake_worker(snowflake_nextval())";
    wait_until("an ID out of the image", Duration::from_secs(60), || {
        let mut psql = Command::new(engine);
        psql.args(["exec", container, "psql", "-h", "127.0.0.1", "-U", "postgres", "-qAtc", query]);
        read(&mut psql).ok()
    })
    .trim()
    .to_owned()
}
