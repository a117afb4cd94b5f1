//! The file of a device's verdicts, and the claim that lets one process at a time reach new ones.

use super::verdict::{Identity, State, Verdict};
use crate::files::{create_folders, create_new, read_cached, remove, write_cached};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum bytes of a file.
const LARGEST: u64 = 1 << 20;

/// Name of the file that is there while a process checks routes.
const CLAIM: &str = "claim";

/// Contents of a file: the verdicts on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The device and everything else that the verdicts depend on.
    pub identity: Identity,
    /// The verdicts, at most one for each route.
    pub verdicts: Vec<Verdict>,
}

impl Record {
    /// Reads the record of a device in a folder. A missing file is an empty record. So is one that cannot be used: it is
    /// torn, for example, or somebody else's. The second value says why.
    pub fn read(folder: &Path, identity: &Identity) -> (Record, Option<String>) {
        let path = folder.join(identity.file_name());
        let empty = || Record { identity: identity.clone(), verdicts: Vec::new() };
        let complaint = |why: String| (empty(), Some(format!("{} is ignored: {why}", path.display())));
        let bytes = match read_cached(&path, LARGEST) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return (empty(), None),
            Err(error) => return complaint(error.to_string()),
        };
        match serde_json::from_slice::<Record>(&bytes) {
            Ok(record) if record.identity == *identity => (record, None),
            Ok(_) => complaint("it is of another device".into()),
            Err(error) => complaint(error.to_string()),
        }
    }

    /// Returns the verdicts on a device in a folder; none without a folder. A file that cannot be used is a warning.
    pub fn verdicts(folder: Option<&Path>, identity: &Identity, device: &str) -> Vec<Verdict> {
        let Some(folder) = folder else { return Vec::new() };
        let (record, complaint) = Record::read(folder, identity);
        if let Some(why) = complaint {
            tracing::warn!(device, "verdicts on routes: {why}");
        }
        record.verdicts
    }

    /// Puts a verdict into the file of a device, in the place of an earlier one on the same route. It is on the disk
    /// when this returns.
    ///
    /// # Errors
    /// Errors of the file system; then the file is unchanged.
    pub fn put(folder: &Path, identity: &Identity, verdict: Verdict) -> io::Result<()> {
        let (mut record, _) = Record::read(folder, identity);
        record.verdicts.retain(|other| other.route != verdict.route);
        record.verdicts.push(verdict);
        let text = serde_json::to_vec_pretty(&record)?;
        write_cached(&folder.join(identity.file_name()), &text)
    }

    /// Replaces the verdict on a route that has begun. Returns false if the route has another verdict.
    ///
    /// # Errors
    /// As [`Record::put`].
    pub fn end(folder: &Path, identity: &Identity, verdict: Verdict) -> io::Result<bool> {
        let (record, _) = Record::read(folder, identity);
        let begun = |v: &Verdict| v.route == verdict.route && v.state == State::Begun;
        let is_begun = record.verdicts.iter().any(begun);
        if is_begun {
            Record::put(folder, identity, verdict)?;
        }
        Ok(is_begun)
    }
}

/// The reason why routes cannot be checked now.
#[derive(Debug)]
pub enum Refused {
    /// Another process checks routes.
    Busy,
    /// The folder cannot be written.
    Folder(io::Error),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Busy => f.write_str("another process is checking routes"),
            Refused::Folder(error) => write!(f, "verdicts cannot be written: {error}"),
        }
    }
}

/// The right to check routes and to write verdicts into a folder. It ends when it is dropped, or after the given time,
/// should the process die.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    text: String,
}

impl Claim {
    /// Takes the claim on a folder for at most `limit`.
    ///
    /// # Errors
    /// [`Refused`] if another process has it, or if the folder cannot be written.
    pub fn take(folder: &Path, limit: Duration) -> Result<Claim, Refused> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        create_folders(folder).map_err(Refused::Folder)?;
        let path = folder.join(CLAIM);
        let until = (now + limit).as_secs() + 1;
        let text = format!("{until} {:016x}", crate::files::random());
        for _ in 0..2 {
            match create_new(&path) {
                Ok(mut file) => {
                    if let Err(error) = file.write_all(text.as_bytes()) {
                        // A claim without contents would keep others away.
                        let _ = remove(&path);
                        return Err(Refused::Folder(error));
                    }
                    return Ok(Claim { path, text });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    if !is_over(&path, now, limit) {
                        return Err(Refused::Busy);
                    }
                    remove(&path).map_err(Refused::Folder)?;
                }
                Err(error) => return Err(Refused::Folder(error)),
            }
        }
        Err(Refused::Busy)
    }
}

/// True if the time of a claim is over, or lies further in the future than any claim of this length.
fn is_over(path: &Path, now: Duration, limit: Duration) -> bool {
    let text = read_cached(path, LARGEST).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let until = text.split(' ').next().and_then(|until| until.parse::<u64>().ok());
    match until {
        Some(until) => until < now.as_secs() || until > (now + 20 * limit).as_secs() + 3600,
        // It is being written, or the process died before that.
        None => {
            let made = std::fs::metadata(path).and_then(|about| about.modified());
            let age = made.ok().and_then(|made| SystemTime::now().duration_since(made).ok());
            age.is_none_or(|age| age > Duration::from_secs(10))
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // After its time another process may have taken it.
        if read_cached(&self.path, LARGEST).is_ok_and(|text| text == self.text.as_bytes()) {
            let _ = remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(kernel: &str) -> Identity {
        Identity(vec![("driver".into(), "hip".into()), ("kernel".into(), kernel.into())])
    }

    #[test]
    fn verdicts_are_kept_by_device_and_route() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, id) = (dir.path().join("routes"), identity("6.1"));
        assert_eq!(Record::read(&folder, &id).0.verdicts, []);
        let verdict = |route: &str, state| Verdict::new(route, state, "seen");
        Record::put(&folder, &id, verdict("hip.a", State::Begun)).unwrap();
        Record::put(&folder, &id, verdict("hip.b", State::Verified)).unwrap();
        assert!(Record::end(&folder, &id, verdict("hip.a", State::Crashed)).unwrap());
        assert!(!Record::end(&folder, &id, verdict("hip.b", State::Hung)).unwrap());
        let (record, complaint) = Record::read(&folder, &id);
        assert_eq!(record.verdicts, [verdict("hip.b", State::Verified), verdict("hip.a", State::Crashed)]);
        assert_eq!(complaint, None);
        assert_eq!(Record::read(&folder, &identity("6.2")).0.verdicts, [], "another kernel");
    }

    #[test]
    fn files_that_cannot_be_used_are_ignored_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let id = identity("6.1");
        let path = dir.path().join(id.file_name());
        let verdict = || Verdict::new("hip.a", State::Verified, "");
        Record::put(dir.path(), &id, verdict()).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (record, complaint) = Record::read(dir.path(), &id);
            assert_eq!((record.verdicts.len(), complaint.is_some()), (0, true), "{length}");
        }
        let foreign = Record { identity: identity("5.0"), verdicts: vec![verdict()] };
        std::fs::write(&path, serde_json::to_vec(&foreign).unwrap()).unwrap();
        let (record, complaint) = Record::read(dir.path(), &id);
        assert!(record.verdicts.is_empty() && complaint.unwrap().contains("another device"));
        // Writing replaces it.
        Record::put(dir.path(), &id, verdict()).unwrap();
        assert_eq!(Record::read(dir.path(), &id), (Record { identity: id, verdicts: vec![verdict()] }, None));
    }

    #[test]
    fn one_process_at_a_time_has_the_claim() {
        let dir = tempfile::tempdir().unwrap();
        let limit = Duration::from_secs(60);
        let take = || Claim::take(dir.path(), limit);
        let first = take().unwrap();
        assert!(matches!(take(), Err(Refused::Busy)));
        drop(first);
        let path = dir.path().join(CLAIM);
        assert!(!path.exists());
        // A process that died; one with a wrong clock; one that wrote nothing yet.
        std::fs::write(&path, "1000 0").unwrap();
        let second = take().unwrap();
        std::fs::write(&path, format!("{} 0", u64::MAX / 2)).unwrap();
        let third = take().unwrap();
        drop(second);
        assert!(path.exists(), "it belongs to the third");
        drop(third);
        std::fs::write(&path, "").unwrap();
        assert!(matches!(take(), Err(Refused::Busy)));
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("routes"), "a file").unwrap();
        let refused = Claim::take(&dir.path().join("routes"), Duration::from_secs(1)).unwrap_err();
        assert!(matches!(refused, Refused::Folder(_)) && refused.to_string().contains("cannot be written"));
        let put =
            Record::put(&dir.path().join("routes"), &identity("6"), Verdict::new("a", State::Begun, ""));
        assert!(put.is_err());
    }
}
