//! AMD's lists of supported processors by release of ROCm, on Linux.

use backend_hip::installed::Release;

/// Targets that the documents list, from one release up to the next row's.
struct Row {
    from: (u32, u32, u32),
    targets: &'static [&'static str],
    /// Targets listed only on a separate release track.
    other_track: &'static [&'static str],
}

/// Source: AMD's compatibility matrices and system requirements. From 7.9 on AMD publishes the targets it
/// builds for and calls only a part of them supported, so this table stops before 7.9.
const LISTS: &[Row] = &[
    Row { from: (5, 7, 0), targets: &["gfx906", "gfx908", "gfx90a", "gfx1030", "gfx1100"], other_track: &[] },
    Row { from: (6, 0, 0), targets: &["gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100"], other_track: &[] },
    Row {
        from: (6, 4, 1),
        targets: &["gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101", "gfx1200", "gfx1201"],
        other_track: &[],
    },
    Row {
        from: (7, 0, 0),
        targets: &[
            "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101", "gfx1200", "gfx1201",
        ],
        other_track: &["gfx1150", "gfx1151"],
    },
];

/// The first release that the table does not cover.
const END: (u32, u32, u32) = (7, 9, 0);

/// Looks up a processor for a release: listed or not, with the evidence. `None` means unknown.
pub(super) fn official(target: &str, release: Release) -> (Option<bool>, String) {
    let version = (release.major, release.minor.unwrap_or(0), release.patch.unwrap_or(0));
    // If only the major version is known, its first and its last release have to agree.
    let last = match release.minor {
        Some(_) => version,
        None => (release.major, u32::MAX, u32::MAX),
    };
    let row = |version| LISTS.iter().rfind(|row| row.from <= version);
    let unknown = |why: &str| (None, format!("the lists for ROCm {release} {why} {target}"));
    if last >= END {
        return unknown("do not cover");
    }
    let (Some(first), Some(row)) = (row(version), row(last)) else { return unknown("do not cover") };
    let listed = |row: &Row| row.targets.contains(&target);
    if listed(first) != listed(row) {
        return unknown("differ between minor versions for");
    }
    if row.other_track.contains(&target) {
        return (None, format!("ROCm {release} lists {target} only on its track for Ryzen processors"));
    }
    match listed(row) {
        true => (Some(true), format!("ROCm {release} lists {target}")),
        false => (Some(false), format!("ROCm {release} does not list {target}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let answer = |target: &str, text: &str| official(target, Release::parse(text).unwrap()).0;
        assert_eq!(answer("gfx906", "5.7.1"), Some(true));
        assert_eq!(answer("gfx906", "6.3.0"), Some(false));
        assert_eq!(answer("gfx1201", "6.4.0"), Some(false));
        assert_eq!(answer("gfx1201", "6.4.1"), Some(true));
        assert_eq!(answer("gfx1151", "7.1.1"), None);
        assert_eq!(answer("gfx906", "7.14.0"), None);
        assert_eq!(answer("gfx906", "5.2"), None);
        assert_eq!(answer("gfx906", "6"), Some(false));
        assert_eq!(answer("gfx1201", "6"), None, "some do");
        assert_eq!(official("gfx900", Release::parse("7.2.0").unwrap()).1, "ROCm 7.2.0 does not list gfx900");
    }
}
