//! What the packages of the extension have to be. Debian's: its content, and a server that has the extension only from
//! it. The RPM, the images and the bills of materials: the same files.

mod image;
mod rpm;
mod sbom;

use crate::command::{as_root, read, run};
use anyhow::{Context, Result, ensure};
use regex::Regex;
use snowflake_server_tests::sql::{next, one, run as sql};
use snowflake_server_tests::{Server, pg_config, wait_until};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package, and a root of its own into which dpkg installs it.
struct Package {
    file: PathBuf,
    name: String,
    /// Of the extension.
    version: String,
    /// Of PostgreSQL.
    major: String,
    root: PathBuf,
}

/// Where the copy of a PostgreSQL has its parts.
struct Copy {
    bindir: PathBuf,
    library: PathBuf,
    extension: PathBuf,
}

/// Checks what `scripts/package` has made, of which `SHA256SUMS` is the list.
///
/// # Errors
/// What a package has too much or too little.
pub fn main(sums: &Path) -> Result<()> {
    let folder = sums.parent().context("a folder")?;
    read(Command::new("sha256sum").current_dir(folder).args(["--check", "--strict", "SHA256SUMS"]))?;
    let sums = fs::read_to_string(sums)?;
    let sums: Vec<(&str, &str)> = sums.lines().filter_map(|line| line.split_once("  ")).collect();
    let &[(deb_sum, deb), (_, deb_sbom), (rpm_sum, rpm), (_, rpm_sbom)] = &sums[..] else {
        anyhow::bail!("not two packages, each with its bill of materials: {sums:#?}")
    };
    // The servers' owner has to get there.
    let root = tempfile::Builder::new().prefix("snowflake_id-root.").tempdir()?;
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755))?;
    let checked = Package::new(&folder.join(deb), root.path()).and_then(|package| {
        let listed = package.check()?;
        let files = package.files()?;
        rpm::check(&package, &folder.join(rpm), &files, &listed)?;
        let (deb_sbom, rpm_sbom) = (folder.join(deb_sbom), folder.join(rpm_sbom));
        sbom::validate(&[&deb_sbom, &rpm_sbom])?;
        let library = files.join(format!("usr/lib/postgresql/{}/lib/snowflake_id.so", package.major));
        let notices = files.join(format!("usr/share/doc/{}/notices/crates.txt", package.name));
        let inside = sbom::Inside { library: &library, notices: &fs::read_to_string(notices)? };
        sbom::check(&deb_sbom, &package.name, deb_sum, &inside)?;
        sbom::check(&rpm_sbom, &format!("snowflake_id_{}", package.major), rpm_sum, &inside)?;
        run_examples(folder, &package.major)?;
        check_names()?;
        image::start(&package.major)
    });
    // What dpkg has installed is root's.
    run(as_root("find").arg(root.path()).args(["-mindepth", "1", "-delete"]))?;
    checked?;
    println!("the packages in {} are sound", folder.display());
    Ok(())
}

impl Package {
    fn new(file: &Path, root: &Path) -> Result<Self> {
        let field = |name: &str| -> Result<String> {
            Ok(read(Command::new("dpkg-deb").arg("--field").arg(file).arg(name))?.trim().to_owned())
        };
        let (name, version) = (field("Package")?, field("Version")?);
        let major = name.split('-').nth(1).context("postgresql-MAJOR-...")?.to_owned();
        let version = version.rsplit_once('-').context("VERSION-REVISION")?.0.to_owned();
        let package = Self { file: file.to_owned(), name, version, major, root: root.to_owned() };
        check_needs(&field("Depends")?, &package.major)?;
        Ok(package)
    }

    /// Returns the names of its files.
    fn check(&self) -> Result<BTreeSet<String>> {
        let copy = self.lay_out_server()?;
        let before = self.tree()?;
        let said = dpkg(&self.root, "--install", self.file.as_ref())?;
        ensure!(!said.contains(AFTER_UPGRADE), "a first installation says {said}");
        self.check_files()?;
        self.check_owner()?;
        // By another process, because one process knows one PostgreSQL.
        self.by_the_copy(&copy, "settings")?;
        let listed = self.installed()?;
        dpkg(&self.root, "--purge", self.name.as_ref())?;
        // Not the other way round, because dpkg also removes empty folders that no package owns.
        let left: Vec<String> = self.tree()?.difference(&before).cloned().collect();
        ensure!(left.is_empty(), "the removed package has left this: {left:#?}");
        println!("   it is gone without a trace");
        image::lay_out(self, &self.files()?, &self.root.join("image"))?;
        // An extension image is mounted, and PostgreSQL is told where, as CloudNativePG does.
        if self.major.parse::<u32>()? >= 18 {
            self.by_the_copy(&copy, "image")?;
        }
        Ok(listed)
    }

    // ---- installing ----

    /// Copies a PostgreSQL without the extension that other tests may have installed there. It finds its files relative
    /// to its programs; Debian's folders, which dpkg uses, are links to them.
    fn lay_out_server(&self) -> Result<Copy> {
        let [bindir, library, shared] =
            ["--bindir", "--pkglibdir", "--sharedir"].map(|what| PathBuf::from(pg_config(what)));
        let mut above = bindir.ancestors().skip(1);
        let top = above.find(|top| library.starts_with(top) && shared.starts_with(top)).context("a root")?;
        let to = |path: &Path| Ok::<_, anyhow::Error>(self.root.join("server").join(path.strip_prefix(top)?));
        let copy =
            Copy { bindir: to(&bindir)?, library: to(&library)?, extension: to(&shared)?.join("extension") };
        for folder in [&bindir, &library, &shared] {
            fs::create_dir_all(to(folder)?)?;
            run(Command::new("cp").arg("-r").arg(folder.join(".")).arg(to(folder)?))?;
        }
        for folder in [&copy.library, &copy.extension] {
            for file in fs::read_dir(folder)? {
                let file = file?;
                if file.file_name().to_string_lossy().starts_with("snowflake_id") {
                    fs::remove_file(file.path())?;
                }
            }
        }
        for (folder, name, target) in [("lib", "lib", &copy.library), ("share", "extension", &copy.extension)]
        {
            let debian = self.root.join("usr").join(folder).join("postgresql").join(&self.major);
            fs::create_dir_all(&debian)?;
            let target = target.strip_prefix(&self.root)?;
            symlink(Path::new("../../../..").join(target), debian.join(name))?;
        }
        run(Command::new("chmod").args(["-R", "a+rX"]).arg(&self.root))?;
        Ok(copy)
    }

    /// A folder with its files, not installed.
    fn files(&self) -> Result<PathBuf> {
        let files = self.root.join("files");
        if !files.exists() {
            run(Command::new("dpkg-deb").arg("--extract").arg(&self.file).arg(&files))?;
        }
        Ok(files)
    }

    // ---- the files ----

    /// Everything in the root except dpkg's database, with its attributes.
    fn tree(&self) -> Result<BTreeSet<String>> {
        let mut find = Command::new("find");
        find.arg(&self.root).arg("-path").arg(self.root.join("dpkg")).args(["-prune", "-o", "-type", "d"]);
        find.args(["-printf", "%P %y %m %U %G\n", "-o", "-printf", "%P %y %m %U %G %s %l\n"]);
        Ok(read(&mut find)?.lines().map(str::to_owned).collect())
    }

    fn installed(&self) -> Result<BTreeSet<String>> {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", self.root.display()));
        dpkg.arg(format!("--admindir={}", self.root.join("dpkg").display())).arg("-L").arg(&self.name);
        let listed = read(&mut dpkg)?;
        let files = listed.lines().map(|path| path.trim_start_matches('/').to_owned());
        Ok(files.filter(|path| !self.root.join(path).is_dir()).collect())
    }

    /// From the content of the repository, not from what the build has put in place.
    fn check_files(&self) -> Result<()> {
        let known = |what: &[&str]| read(Command::new("git").arg("ls-files").args(what));
        let documents = format!("usr/share/doc/{}", self.name);
        let extension = format!("usr/share/postgresql/{}/extension", self.major);
        let mut expected = BTreeSet::from([
            format!("usr/lib/postgresql/{}/lib/snowflake_id.so", self.major),
            format!("{extension}/snowflake_id.control"),
            format!("{extension}/snowflake_id--{}.sql", self.version),
        ]);
        let upgrades = known(&["sql/snowflake_id--*--*.sql"])?;
        expected.extend(upgrades.lines().map(|file| file.replacen("sql", &extension, 1)));
        let own = "CHANGELOG.md README.Debian README.md SECURITY.md changelog.Debian.gz changelog.gz copyright \
             examples/snowflake_id.conf notices/crates.txt notices/rust-std.html";
        let pages = known(&["docs", "examples", "portable"])?;
        expected.extend(own.split(' ').chain(pages.lines()).map(|file| format!("{documents}/{file}")));
        let installed = self.installed()?;
        let missing: Vec<_> = expected.difference(&installed).collect();
        let more: Vec<_> = installed.difference(&expected).collect();
        ensure!(
            missing.is_empty() && more.is_empty(),
            "missing: {missing:#?}; should not be there (what is new has to be known to git): {more:#?}"
        );
        println!("   it has the {} files that it should have, and no other", expected.len());
        let documents = self.root.join(documents);
        let changes = read(Command::new("gzip").arg("-dc").arg(documents.join("changelog.gz")))?;
        ensure!(changes == fs::read_to_string("CHANGELOG.md")?, "changelog.gz is not CHANGELOG.md");
        check_links(&self.root, &installed)?;
        let copyright = fs::read_to_string(documents.join("copyright"))?;
        ensure!(
            copyright
                .ends_with(&format!("License: PostgreSQL\n{}", licence(&fs::read_to_string("LICENSE")?))),
            "the copyright file has another licence than LICENSE"
        );
        Ok(())
    }

    fn check_owner(&self) -> Result<()> {
        let contents = read(Command::new("dpkg-deb").arg("--contents").arg(&self.file))?;
        let is_right = |line: &&str| {
            ["drwxr-xr-x root/root ", "-rw-r--r-- root/root "].iter().any(|s| line.starts_with(s))
        };
        let wrong: Vec<&str> = contents.lines().filter(|line| !is_right(line)).collect();
        ensure!(wrong.is_empty(), "not as a package's files should be: {wrong:#?}");
        println!("   all of them are root's, and nobody else can write them");
        Ok(())
    }

    // ---- a server that has it ----

    /// Calls this program with the copied PostgreSQL.
    fn by_the_copy(&self, copy: &Copy, way: &str) -> Result<()> {
        let mut this = Command::new(std::env::current_exe()?);
        this.args(["package-serves", way, &self.name]);
        this.arg(&self.root).arg(&copy.library).arg(&self.file);
        this.env("PG_CONFIG", copy.bindir.join("pg_config")).env("LD_LIBRARY_PATH", original_libraries()?);
        run(&mut this)
    }
}

/// What a package says after an upgrade, and only then.
const AFTER_UPGRADE: &str = "restart the servers that preload it";

/// dpkg with a database of its own in that root, which contains no other package; the dependencies are checked elsewhere.
/// Returns what it says.
fn dpkg(root: &Path, action: &str, what: &OsStr) -> Result<String> {
    let admin = root.join("dpkg");
    if !admin.exists() {
        fs::create_dir_all(admin.join("info"))?;
        fs::create_dir_all(admin.join("updates"))?;
        fs::write(admin.join("status"), "")?;
        fs::write(admin.join("available"), "")?;
    }
    let mut dpkg = as_root("dpkg");
    dpkg.arg(format!("--root={}", root.display())).arg(format!("--admindir={}", admin.display()));
    // The root has no shell of its own.
    dpkg.args(["--log=/dev/null", "--force-depends", "--force-script-chrootless", "--no-triggers", action]);
    read(dpkg.arg(what))
}

/// The folders in which the programs of the original PostgreSQL find their libraries, which may be relative to theirs.
fn original_libraries() -> Result<String> {
    let bindir = PathBuf::from(pg_config("--bindir"));
    let mut folders = BTreeSet::from([PathBuf::from(pg_config("--libdir"))]);
    for program in ["postgres", "initdb"] {
        let libraries = read(Command::new("ldd").arg(bindir.join(program)))?;
        let found = libraries.split_whitespace().filter(|word| word.starts_with('/'));
        folders.extend(found.filter_map(|library| Some(Path::new(library).parent()?.to_owned())));
    }
    // Where a C library is, only programs made for it can look; those of such a PostgreSQL do so by themselves.
    folders.retain(|folder| !folder.join("libc.so.6").exists());
    Ok(folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":"))
}

/// A server of the copied PostgreSQL makes IDs with what the package has brought.
///
/// # Errors
/// It does not.
pub fn serves(way: &str, name: &str, root: &Path, library: &Path, file: &Path) -> Result<()> {
    let builder = Server::builder().setting("snowflake_id.worker_id", "7");
    if way == "image" {
        let image = root.join("image");
        let server = builder
            .setting("extension_control_path", &format!("$system:{}/share", image.display()))
            .setting("dynamic_library_path", &format!("$libdir:{}/lib", image.display()))
            .start_with_extension();
        is_loaded_from(&server, &image.join("lib"))?;
        let worker: i32 = one(&mut server.connect(), "SELECT snowflake_worker(snowflake_nextval())::integer");
        ensure!(worker == 7, "an ID of worker {worker} out of a folder of its own");
        println!("   the same files work out of a folder of their own");
        return Ok(());
    }
    // As an operator does it: with the package's settings, and a worker.
    let settings = root.join("usr/share/doc").join(name).join("examples/snowflake_id.conf");
    let mut server =
        builder.without("shared_preload_libraries").setting("include", &settings.to_string_lossy()).start();
    is_loaded_from(&server, library)?;
    let mut session = server.connect();
    sql(&mut session, "CREATE EXTENSION snowflake_id");
    wait_until("an ID", std::time::Duration::from_secs(15), || {
        one::<bool>(&mut session, "SELECT state = 'open' FROM snowflake_status").then_some(())
    });
    ensure!(next(&mut session) > 0, "no ID");
    sql(
        &mut session,
        "CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), n integer);
         INSERT INTO t (n) SELECT g FROM generate_series(1, 100000) AS g",
    );
    let query = "SELECT count(DISTINCT id) FROM t
                 WHERE snowflake_worker(id) = 7 AND snowflake_timestamp(id) < now() + interval '1 min'";
    let made: i64 = one(&mut session, query);
    ensure!(made == 100_000, "100000 rows have {made} IDs of worker 7");
    println!("   a server makes IDs with what the package brought");

    // The same package is as good as the next one: dpkg replaces each file by another.
    let said = dpkg(root, "--install", file.as_ref())?;
    ensure!(said.contains(AFTER_UPGRADE), "an upgrade does not say what to restart: {said}");
    ensure!(is_loaded_from(&server, library).is_err(), "the server's library was not replaced");
    let before = [next(&mut session), next(&mut server.connect())];
    server.restart();
    is_loaded_from(&server, library)?;
    let after = wait_until("an ID", std::time::Duration::from_secs(15), || {
        server.connect().query_one("SELECT snowflake_nextval()", &[]).ok().map(|row| row.get::<_, i64>(0))
    });
    ensure!(before.iter().all(|id| *id < after), "after an upgrade, {after} is not above {before:?}");
    println!("   an upgrade disturbs no running server, and says what to restart");
    Ok(())
}

/// Whether the server has loaded the library from this folder.
fn is_loaded_from(server: &Server, folder: &Path) -> Result<()> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.pid()))?;
    let paths = maps.lines().filter_map(|line| line.find('/').map(|start| &line[start..]));
    let loaded: BTreeSet<&str> = paths.filter(|path| path.ends_with("/snowflake_id.so")).collect();
    let expected = folder.join("snowflake_id.so").canonicalize()?;
    let expected = expected.to_string_lossy();
    ensure!(loaded.iter().eq([&&*expected]), "the server has loaded {loaded:?}, not {expected}");
    Ok(())
}

/// The manual's blocks `sh packages`, which name the packages of PostgreSQL 15 for one processor.
fn run_examples(folder: &Path, major: &str) -> Result<()> {
    let manual = fs::read_to_string("docs/installing.md")?;
    let blocks: Vec<&str> = manual.split("```sh packages\n").skip(1).collect();
    ensure!(!blocks.is_empty(), "docs/installing.md has no example with packages");
    for block in &blocks {
        let example = block.split("```").next().unwrap_or_default();
        let example = example.replace("15", major).replace("x86_64", std::env::consts::ARCH);
        let mut bash = Command::new("bash");
        let printed = read(bash.current_dir(folder).args(["-euo", "pipefail", "-c", &example]))?;
        ensure!(!printed.is_empty(), "this prints nothing: {example}");
    }
    println!("   the manual's {} examples with packages work", blocks.len());
    Ok(())
}

/// The files that README and manual name are among those of a release.
fn check_names() -> Result<()> {
    let listed = read(Command::new("scripts/release").args(["list", "target"]).env_remove("PG_MAJOR"))?;
    // Those of all systems lie beside each other there.
    let listed = Regex::new("~[a-z]+[0-9.]+_")?.replace_all(&listed, "_").into_owned();
    let name = "((postgresql-15-snowflake-id_|snowflake_id_15-|snowflake_id-)[^ `/\n]+[.](deb|rpm|zip)|snowflake_id[.]sql|\
                SHA256SUMS)([.]cdx[.]json)?";
    let name = Regex::new(name)?;
    for page in ["README.md", "docs/installing.md", "docs/portable.md"] {
        let text = fs::read_to_string(page)?;
        let mut names = name.find_iter(&text).peekable();
        ensure!(names.peek().is_some(), "{page} names no file of a release");
        for name in names {
            let pattern = regex::escape(name.as_str()).replace(r"\*", ".*");
            let is_listed = Regex::new(&format!("(?m)^{pattern}$"))?.is_match(&listed);
            ensure!(is_listed, "{page} names {}, which no release has: {listed}", name.as_str());
        }
    }
    println!("   a release has the files that the manual names");
    Ok(())
}

fn check_needs(depends: &str, major: &str) -> Result<()> {
    let needs: Vec<&str> = depends.split(", ").collect();
    ensure!(
        needs.contains(&&*format!("postgresql-{major}")),
        "it does not depend on postgresql-{major}: {depends}"
    );
    let names_library = needs.iter().any(|need| need.starts_with("libc6 (>= "));
    ensure!(names_library, "it does not say which C library will do: {depends}");
    println!("   it depends on {depends}");
    Ok(())
}

/// The pages of the manual lead to files of the package only.
fn check_links(root: &Path, installed: &BTreeSet<String>) -> Result<()> {
    let link = Regex::new(r"\]\(([^):#]+)(#[^)]*)?\)")?;
    for page in installed.iter().filter(|file| file.ends_with(".md")) {
        let page = root.join(page);
        for found in link.captures_iter(&fs::read_to_string(&page)?) {
            let is_there = page.with_file_name("").join(&found[1]).exists();
            ensure!(is_there, "{} links to {}, which is not there", page.display(), &found[1]);
        }
    }
    println!("   the links of its pages lead to its files");
    Ok(())
}

/// The text of LICENSE after the names of its owners, as the format of a copyright file has it: indented, with a dot in an
/// empty line.
fn licence(text: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with("Copyright")).skip(2);
    lines.map(|line| format!(" {}\n", if line.is_empty() { "." } else { line })).collect()
}
