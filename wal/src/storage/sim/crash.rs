//! What a power cut may leave: every legal image of a disk.
//!
//! Since the last sync of a file each 512-byte sector that was changed may be there in any of the versions that it had, in any
//! combination; one sector of the whole disk may be torn inside, the beginning of a newer version before the rest of an older one; the length may be
//! any that the file had. Since the last directory sync each change of names may be there or not.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::disk::{Disk, Inode, InodeId, SECTOR};
use super::rng::Rng;

/// Where a sector may tear when all images are enumerated. Samples tear anywhere.
const TEARS: [usize; 4] = [1, 8, 255, 511];

/// One thing that a crash decides.
struct Choice {
    /// Ways in which it may go without a tear; the last is "as seen".
    plain: usize,
    /// Further ways, each with a torn sector.
    torn: usize,
}

/// The versions of one file's parts.
struct File {
    /// Lengths it had, oldest first.
    lens: Vec<usize>,
    /// For each sector that was changed the versions it had, oldest first.
    sectors: BTreeMap<usize, Vec<Vec<u8>>>,
}

/// Everything that a crash decides, in order: for each file its length, then its sectors; then each change of names; then the
/// directory itself.
pub(super) struct Space<'a> {
    disk: &'a Disk,
    files: Vec<(InodeId, File)>,
    choices: Vec<Choice>,
}

impl File {
    fn of(inode: &Inode) -> Self {
        let mut content = inode.durable.to_vec();
        let mut lens = vec![content.len()];
        let mut sectors: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
        for op in &inode.ops {
            let before = content.len();
            let changed = op.sectors(before);
            for n in changed.clone() {
                sectors.entry(n).or_insert_with(|| vec![sector(&content, n)]);
            }
            op.apply(&mut content);
            for n in changed {
                let now = sector(&content, n);
                if let Some(versions) = sectors.get_mut(&n)
                    && versions.last() != Some(&now)
                {
                    versions.push(now);
                }
            }
            if lens.last() != Some(&content.len()) {
                lens.push(content.len());
            }
        }
        sectors.retain(|_, versions| versions.len() > 1);
        Self { lens, sectors }
    }
}

/// A sector's bytes, with zeros behind the end of the file.
fn sector(content: &[u8], n: usize) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR];
    let part = content
        .get(n * SECTOR..content.len().min((n + 1) * SECTOR))
        .unwrap_or_default();
    bytes[..part.len()].copy_from_slice(part);
    bytes
}

impl<'a> Space<'a> {
    pub(super) fn of(disk: &'a Disk) -> Self {
        let linked: BTreeSet<InodeId> = disk
            .durable_names
            .values()
            .chain(disk.names.values())
            .copied()
            .collect();
        let mut files = Vec::new();
        let mut choices = Vec::new();
        for id in linked {
            let Some(inode) = disk.inode(id).filter(|inode| !inode.ops.is_empty()) else {
                continue;
            };
            let file = File::of(inode);
            choices.push(Choice {
                plain: file.lens.len(),
                torn: 0,
            });
            for versions in file.sectors.values() {
                choices.push(Choice {
                    plain: versions.len(),
                    torn: (versions.len() - 1) * TEARS.len(),
                });
            }
            files.push((id, file));
        }
        choices.extend(disk.name_ops.iter().map(|_| Choice { plain: 2, torn: 0 }));
        if disk.exists && !disk.exists_durably {
            choices.push(Choice { plain: 2, torn: 0 });
        }
        Self { disk, files, choices }
    }

    /// How many combinations there are; images may be fewer, where some are alike.
    pub(super) fn count(&self) -> u128 {
        let plain = self
            .choices
            .iter()
            .fold(1u128, |n, c| n.saturating_mul(c.plain as u128));
        let torn = self.choices.iter().filter(|c| c.torn > 0);
        torn.fold(plain, |n, c| {
            n.saturating_add((plain / c.plain as u128).saturating_mul(c.torn as u128))
        })
    }

    /// Calls `each` with distinct images: all of them if there are at most `limit` combinations, else `limit` samples, the
    /// extremes among them. Returns how many.
    pub(super) fn visit(&self, limit: usize, seed: u64, mut each: impl FnMut(Disk)) -> usize {
        let mut seen = HashSet::new();
        let mut show = |disk: Disk| {
            if seen.insert(disk.fingerprint()) {
                each(disk);
            }
        };
        if self.count() <= limit as u128 {
            self.visit_all(&mut show);
        } else {
            for picks in self.extremes() {
                show(self.image(&picks, None));
            }
            let mut rng = Rng::new(seed);
            for _ in 0..limit.saturating_sub(4) {
                show(self.sample(&mut rng));
            }
        }
        seen.len()
    }

    fn visit_all(&self, show: &mut impl FnMut(Disk)) {
        let mut picks = vec![0; self.choices.len()];
        loop {
            // At most one torn sector in an image.
            let torn = picks
                .iter()
                .zip(&self.choices)
                .filter(|(pick, c)| **pick >= c.plain)
                .count();
            if torn <= 1 {
                show(self.image(&picks, None));
            }
            let Some(at) = picks
                .iter()
                .zip(&self.choices)
                .position(|(pick, c)| pick + 1 < c.plain + c.torn)
            else {
                return;
            };
            picks[at] += 1;
            picks[..at].fill(0);
        }
    }

    /// Nothing kept, all kept, only names, only contents.
    fn extremes(&self) -> [Vec<usize>; 4] {
        let of_files = |(_, file): &(InodeId, File)| 1 + file.sectors.len();
        let names: usize = self.files.iter().map(of_files).sum();
        let pick = |data: bool, name: bool| {
            let kept = |(n, c): (usize, &Choice)| {
                if if n < names { data } else { name } {
                    c.plain - 1
                } else {
                    0
                }
            };
            self.choices.iter().enumerate().map(kept).collect()
        };
        [
            pick(false, false),
            pick(true, true),
            pick(false, true),
            pick(true, false),
        ]
    }

    /// One image at random.
    pub(super) fn sample(&self, rng: &mut Rng) -> Disk {
        // Uniform picks alone would hardly ever keep, or lose, nearly everything.
        let bias = rng.below(3);
        let mut picks: Vec<usize> = self
            .choices
            .iter()
            .map(|c| match bias {
                0 if rng.below(8) > 0 => 0,
                1 if rng.below(8) > 0 => c.plain - 1,
                _ => rng.below(c.plain),
            })
            .collect();
        let tearable: Vec<usize> = (0..picks.len()).filter(|n| self.choices[*n].torn > 0).collect();
        let mut tear = None;
        if !tearable.is_empty() && rng.below(2) == 0 {
            let at = tearable[rng.below(tearable.len())];
            picks[at] = self.choices[at].plain + rng.below(self.choices[at].torn);
            tear = Some(1 + rng.below(SECTOR - 1));
        }
        self.image(&picks, tear)
    }

    fn image(&self, picks: &[usize], tear: Option<usize>) -> Disk {
        let mut picks = picks.iter().copied();
        let mut contents: BTreeMap<InodeId, Vec<u8>> = BTreeMap::new();
        for (id, file) in &self.files {
            let Some(inode) = self.disk.inode(*id) else { continue };
            let len = file.lens[picks.next().unwrap_or_default()];
            let mut content = inode.durable.to_vec();
            content.resize(len, 0);
            for (n, versions) in &file.sectors {
                let pick = picks.next().unwrap_or_default();
                let bytes = match pick.checked_sub(versions.len()) {
                    None => versions[pick].clone(),
                    Some(torn) => {
                        let (older, cut) = (torn / TEARS.len(), tear.unwrap_or(TEARS[torn % TEARS.len()]));
                        [&versions[older + 1][..cut], &versions[older][cut..]].concat()
                    }
                };
                let from = (n * SECTOR).min(len);
                let to = ((n + 1) * SECTOR).min(len);
                content[from..to].copy_from_slice(&bytes[..to - from]);
            }
            contents.insert(*id, content);
        }
        let mut names = self.disk.durable_names.clone();
        for op in &self.disk.name_ops {
            if picks.next() == Some(1) {
                op.apply(&mut names);
            }
        }
        if self.disk.exists && !self.disk.exists_durably && picks.next() == Some(0) {
            return Disk::default();
        }
        let files = names.into_iter().map(|(name, id)| {
            let durable = || {
                self.disk
                    .inode(id)
                    .map(|inode| inode.durable.to_vec())
                    .unwrap_or_default()
            };
            (name, contents.get(&id).cloned().unwrap_or_else(durable))
        });
        let mut image = Disk::of(files);
        (image.exists, image.exists_durably) = (self.disk.exists, self.disk.exists);
        image
    }
}
