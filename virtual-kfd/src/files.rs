//! The files of a machine, as a file system has them: names are resolved, folders listed.

use crate::options::Options;
use crate::topology::{self, Entry};

/// Most links on the way to a file, as in Linux.
const MOST_LINKS: usize = 40;

/// The files of a machine by their paths, sorted. A file's index is its place, which never changes.
#[derive(Clone, Debug)]
pub struct Files(Vec<(String, Entry)>);

impl Files {
    /// Returns the files of the machine that the options describe.
    pub fn new(options: &Options) -> Files {
        let mut all = Vec::new();
        for (path, entry) in topology::entries(options) {
            let parents = path.match_indices('/').map(|(end, _)| (path[..end].to_string(), Entry::Folder));
            all.extend(parents);
            all.push((path, entry));
        }
        all.push((String::new(), Entry::Folder));
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.dedup_by(|a, b| a.0 == b.0);
        Files(all)
    }

    /// Returns a file's path, which begins with `/` and has no links but perhaps the last part, and what it is.
    ///
    /// # Errors `ENOENT` for an index beyond the last one.
    pub fn at(&self, index: usize) -> Result<(String, &Entry), i32> {
        self.0.get(index).map(|(path, entry)| (format!("/{path}"), entry)).ok_or(libc::ENOENT)
    }

    fn index(&self, path: &str) -> Result<usize, i32> {
        self.0.binary_search_by(|entry| entry.0.as_str().cmp(path)).map_err(|_| libc::ENOENT)
    }

    /// Returns the index of the file at a path: from the root if it begins with `/`, otherwise from the folder of an
    /// index. A link at its end is followed if `follow` says so, or if a `/` comes after it.
    ///
    /// # Errors `ENOENT` if there is none, `ENOTDIR` if a part before the last is no folder, `ELOOP` for too many links.
    pub fn find(&self, from: usize, path: &str, follow: bool) -> Result<usize, i32> {
        let mut here = if path.starts_with('/') { 0 } else { from };
        let mut rest: Vec<String> = path.split('/').rev().map(str::to_string).collect();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            let (folder, entry) = self.0.get(here).ok_or(libc::ENOENT)?;
            if *entry != Entry::Folder {
                return Err(libc::ENOTDIR);
            }
            let next = match part.as_str() {
                "" | "." => continue,
                ".." => folder.rfind('/').map_or("", |end| &folder[..end]).to_string(),
                part if folder.is_empty() => part.to_string(),
                part => format!("{folder}/{part}"),
            };
            let next = self.index(&next)?;
            match &self.0[next].1 {
                Entry::Link(to) if follow || !rest.is_empty() => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(libc::ELOOP);
                    }
                    here = if to.starts_with('/') { 0 } else { here };
                    rest.extend(to.split('/').rev().map(str::to_string));
                }
                _ => here = next,
            }
        }
        Ok(here)
    }

    /// Returns the names in a folder with their indices, without `.` and `..`.
    pub fn names(&self, folder: usize) -> Vec<(&str, usize)> {
        let Some((path, _)) = self.0.get(folder) else { return Vec::new() };
        let name = |i: usize| {
            let rest = self.0[i].0.strip_prefix(path.as_str())?;
            let rest = if path.is_empty() { rest } else { rest.strip_prefix('/')? };
            (!rest.is_empty() && !rest.contains('/')).then_some((rest, i))
        };
        (0..self.0.len()).filter_map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Files {
        Files::new(&Options::default())
    }

    fn names(files: &Files, path: &str) -> Vec<String> {
        let folder = files.find(0, path, true).unwrap_or_else(|e| panic!("{path}: errno {e}"));
        files.names(folder).iter().map(|name| name.0.to_string()).collect()
    }

    #[test]
    fn a_node_has_each_folder_of_the_kernel() {
        let files = files();
        for node in 0..2 {
            let names = names(&files, &format!("/sys/class/kfd/kfd/topology/nodes/{node}"));
            for folder in ["mem_banks", "caches", "io_links", "p2p_links"] {
                assert!(names.iter().any(|name| name == folder), "{names:?}");
            }
        }
    }

    #[test]
    fn names_are_resolved() {
        let files = files();
        let path = |from: usize, path: &str, follow: bool| Ok(files.at(files.find(from, path, follow)?)?.0);
        let device = "/sys/devices/pci0000:00/0000:03:00.0";
        let drm = files.find(0, "/sys/class/drm", true).unwrap();
        for (to, follow, found) in [
            ("/sys/class/drm/renderD128", false, "/sys/class/drm/renderD128"),
            ("/sys/class/drm/renderD128", true, &*format!("{device}/drm/renderD128")),
            ("/sys/class/drm/renderD128/", false, &*format!("{device}/drm/renderD128")),
            ("card0/device/vendor", true, &*format!("{device}/vendor")),
            (".//card0/device/driver/module/../module", true, "/sys/bus/pci/drivers/amdgpu/module"),
            ("..", true, "/sys/class"),
            ("/../..", true, "/"),
        ] {
            assert_eq!(path(drm, to, follow), Ok::<String, i32>(found.into()), "{to}");
        }
        for (to, errno) in [
            ("card7", libc::ENOENT),
            ("card0/device/vendor/..", libc::ENOTDIR),
            ("/sys/class/kfd/kfd/topology/nodes/0/gpu_id/", libc::ENOTDIR),
        ] {
            assert_eq!(path(drm, to, true), Err(errno), "{to}");
        }
        let text = files.at(files.find(drm, "card0/device/vendor", true).unwrap()).unwrap().1;
        assert_eq!(*text, Entry::File("0x1002\n".into()));
    }

    #[test]
    fn folders_are_listed() {
        let files = files();
        assert_eq!(names(&files, "/sys/class/drm"), ["card0", "renderD128"]);
        assert_eq!(names(&files, "/"), ["dev", "sys"]);
        assert_eq!(names(&files, "/dev/dri"), ["renderD128"]);
        assert!(names(&files, "/sys/class/kfd/kfd/topology/nodes/0/caches").is_empty());
        assert!(files.names(usize::MAX).is_empty() && files.at(usize::MAX).is_err());
        let circle = Files(vec![(String::new(), Entry::Folder), ("a".into(), Entry::Link("a".into()))]);
        assert_eq!(circle.find(0, "/a", true), Err(libc::ELOOP));
        assert_eq!(circle.find(0, "/a", false), Ok(1));
    }
}
