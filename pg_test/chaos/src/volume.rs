//! A file system of its own for a server's data directory, on a loop device, so that it can be cloned as a block
//! device is. A clone has the same inodes and times of birth.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use snowflake_server_tests::{Server, faults, ms, secs, wait_until};
use std::fs::{DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Volume {
    image: PathBuf,
    device: String,
    folder: PathBuf,
}

/// Whether a run uses volumes. In a container there may be no loop devices, which it says.
pub fn can_be_used(can_mount: bool) -> bool {
    let can_be_used = can_mount && can_be_mounted();
    if !can_be_used {
        println!("No loop devices can be mounted here: no volume is cloned or set back.");
    }
    can_be_used
}

fn can_be_mounted() -> bool {
    let folder = faults::new_folder();
    let image = folder.join("image");
    let made = File::create(&image).and_then(|file| file.set_len(16 << 20)).is_ok()
        && succeeds("mkfs.ext4", &["-q", text(&image)]);
    let Some(device) = made.then(|| attach(&image, &["--find", "--show"])).flatten() else { return false };
    let mounted = mount(Some(device.as_str()), &folder, Some("ext4"), MsFlags::empty(), None::<&str>).is_ok();
    if mounted {
        let _ = umount2(&folder, MntFlags::MNT_DETACH);
    }
    succeeds("losetup", &["-d", &device]) && mounted && succeeds("fsfreeze", &["--version"])
}

impl Volume {
    /// Moves a stopped server's data directory to a new volume.
    pub fn take_over(server: &Server) -> Self {
        let image = new_image(server);
        run("truncate", &["-s", "1G", text(&image)]);
        run("mkfs.ext4", &["-q", "-m", "0", "-O", "^has_journal", text(&image)]);
        let (data, old) = (server.data(), server.folder().join("old"));
        std::fs::rename(&data, &old).expect("a folder can be renamed");
        DirBuilder::new().mode(0o700).create(&data).expect("a folder can be made");
        let volume = Self::mount(image, &data, None);
        // pg_basebackup could not read it.
        let _ = std::fs::remove_dir(data.join("lost+found"));
        run("cp", &["-a", &format!("{}/.", text(&old)), text(&data)]);
        std::fs::set_permissions(&data, Permissions::from_mode(0o700)).expect("its owner may");
        faults::own(&data);
        let _ = std::fs::remove_dir_all(&old);
        volume
    }

    /// A clone of the volume at this moment, as the new data directory of another server.
    pub fn clone_to(&self, server: &Server) -> Self {
        let image = self.snapshot(server);
        let data = server.data();
        DirBuilder::new().mode(0o700).create(&data).expect("a folder can be made");
        Self::mount(image, &data, None)
    }

    /// An image of the volume at this moment, in a server's folder.
    pub fn snapshot(&self, server: &Server) -> PathBuf {
        let image = new_image(server);
        run("fsfreeze", &["-f", text(&self.folder)]);
        let is_copied = succeeds("cp", &["--sparse=always", text(&self.image), text(&image)]);
        run("fsfreeze", &["-u", text(&self.folder)]);
        assert!(is_copied, "the image could not be copied");
        image
    }

    /// Sets the volume of a stopped server back to an earlier image, if possible on the same device.
    pub fn set_back(self, image: PathBuf) -> Self {
        let (device, folder) = (self.device.clone(), self.folder.clone());
        drop(self);
        Self::mount(image, &folder, Some(&device))
    }

    fn mount(image: PathBuf, folder: &Path, wanted: Option<&str>) -> Self {
        let same = wanted.and_then(|device| attach(&image, &[device]).map(|_| device.to_owned()));
        let device = same.unwrap_or_else(|| {
            wait_until("a loop device", secs(30), || {
                let device = attach(&image, &["--find", "--show"]);
                if device.is_none() {
                    std::thread::sleep(ms(100));
                }
                device
            })
        });
        mount(Some(device.as_str()), folder, Some("ext4"), MsFlags::MS_NOATIME, None::<&str>)
            .unwrap_or_else(|e| panic!("cannot mount {device} at {}: {e}", folder.display()));
        // Of the server that ran when the image was taken; on another host no process would have its number.
        let _ = std::fs::remove_file(folder.join("postmaster.pid"));
        Self { image, device, folder: folder.to_owned() }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if umount2(&self.folder, MntFlags::empty()).is_err() {
            let _ = umount2(&self.folder, MntFlags::MNT_DETACH);
        }
        succeeds("losetup", &["-d", &self.device]);
        let _ = std::fs::remove_file(&self.image);
    }
}

fn new_image(server: &Server) -> PathBuf {
    let number = (1..).find(|n| !server.folder().join(format!("volume.{n}")).exists());
    server.folder().join(format!("volume.{}", number.expect("a number")))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the folder has an ASCII name")
}

/// Gives an image a device, whose name is returned if `losetup` prints it.
fn attach(image: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("losetup").args(args).arg(image).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {said}");
}
