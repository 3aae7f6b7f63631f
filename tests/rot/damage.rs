//! What can happen to a disk by itself, or by a hand that meant well.

use std::ops::Range;

use wal::storage::sim::SimStorage;

use super::scenes::Scene;

pub const SECTOR: usize = 512;

/// One piece of damage.
#[derive(Debug, Clone)]
pub enum Damage {
    Bit {
        file: String,
        pos: usize,
        bit: u32,
    },
    /// A sector of zeros.
    Blank {
        file: String,
        sector: usize,
    },
    /// A sector with the bytes of another of the same file.
    Misplaced {
        file: String,
        sector: usize,
        from: usize,
    },
    /// A sector with the bytes that lie there in another file.
    Sector {
        file: String,
        sector: usize,
        from: Source,
    },
    Cut {
        file: String,
        len: usize,
    },
    Removed {
        file: String,
    },
    /// The whole file replaced by another.
    Replaced {
        file: String,
        from: Source,
    },
    /// A copy of the file under another name.
    Copied {
        file: String,
        to: String,
    },
    Renamed {
        file: String,
        to: String,
    },
}

/// Where other bytes come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Another file of the same disk.
    File(String),
    /// The file of the same place in another log or store.
    Other,
    /// The same file at an earlier time.
    Earlier,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Bit,
    Blank,
    Misplaced,
    SectorOfFile,
    SectorOfOther,
    SectorOfEarlier,
    Cut,
    Removed,
    ReplacedByFile,
    ReplacedByOther,
    ReplacedByEarlier,
    Copied,
    Renamed,
}

impl Kind {
    pub fn words(self) -> &'static str {
        match self {
            Self::Bit => "bit flipped",
            Self::Blank => "sector blank",
            Self::Misplaced => "sector from elsewhere",
            Self::SectorOfFile => "sector of another file",
            Self::SectorOfOther => "sector of another log",
            Self::SectorOfEarlier => "sector of before",
            Self::Cut => "cut",
            Self::Removed => "removed",
            Self::ReplacedByFile => "another file",
            Self::ReplacedByOther => "file of another log",
            Self::ReplacedByEarlier => "file of before",
            Self::Copied => "copied",
            Self::Renamed => "renamed",
        }
    }

    /// Whether it brings back what was right once: nothing in a file says that there was a newer one.
    pub fn is_old(self) -> bool {
        matches!(self, Self::SectorOfEarlier | Self::ReplacedByEarlier)
    }
}

impl Damage {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Bit { .. } => Kind::Bit,
            Self::Blank { .. } => Kind::Blank,
            Self::Misplaced { .. } => Kind::Misplaced,
            Self::Sector { from, .. } => match from {
                Source::File(_) => Kind::SectorOfFile,
                Source::Other => Kind::SectorOfOther,
                Source::Earlier => Kind::SectorOfEarlier,
            },
            Self::Cut { .. } => Kind::Cut,
            Self::Removed { .. } => Kind::Removed,
            Self::Replaced { from, .. } => match from {
                Source::File(_) => Kind::ReplacedByFile,
                Source::Other => Kind::ReplacedByOther,
                Source::Earlier => Kind::ReplacedByEarlier,
            },
            Self::Copied { .. } => Kind::Copied,
            Self::Renamed { .. } => Kind::Renamed,
        }
    }

    /// The bytes that it touches, where it leaves the rest of the file.
    pub fn place(&self) -> Option<Range<usize>> {
        match self {
            Self::Bit { pos, .. } => Some(*pos..pos + 1),
            Self::Blank { sector, .. } | Self::Misplaced { sector, .. } | Self::Sector { sector, .. } => {
                Some(sector * SECTOR..(sector + 1) * SECTOR)
            }
            _ => None,
        }
    }

    pub fn file(&self) -> &str {
        match self {
            Self::Bit { file, .. }
            | Self::Blank { file, .. }
            | Self::Misplaced { file, .. }
            | Self::Sector { file, .. }
            | Self::Cut { file, .. }
            | Self::Removed { file }
            | Self::Replaced { file, .. }
            | Self::Copied { file, .. }
            | Self::Renamed { file, .. } => file,
        }
    }

    pub fn file_class(&self) -> String {
        class(self.file()).to_owned()
    }

    pub fn apply(&self, disk: &SimStorage, scene: &Scene) {
        let content = |name: &str| disk.read_file(name).unwrap_or_default();
        let bytes_of = |from: &Source, file: &str| match from {
            Source::File(name) => content(name),
            Source::Other => scene
                .other
                .read_file(&counterpart(&scene.other, file))
                .unwrap_or_default(),
            Source::Earlier => scene.earlier.read_file(file).unwrap_or_default(),
        };
        match self {
            Self::Bit { file, pos, bit } => {
                disk.flip_bit(file, *pos, *bit);
            }
            Self::Blank { file, sector } => put_sector(disk, file, *sector, &[]),
            Self::Misplaced { file, sector, from } => {
                let bytes = content(file);
                put_sector(disk, file, *sector, bytes.get(from * SECTOR..).unwrap_or_default());
            }
            Self::Sector { file, sector, from } => {
                let bytes = bytes_of(from, file);
                put_sector(disk, file, *sector, bytes.get(sector * SECTOR..).unwrap_or_default());
            }
            Self::Cut { file, len } => {
                disk.truncate_file(file, *len);
            }
            Self::Removed { file } => {
                disk.remove_file(file);
            }
            Self::Replaced { file, from } => disk.write_file(file, &bytes_of(from, file)),
            Self::Copied { file, to } => disk.write_file(to, &content(file)),
            Self::Renamed { file, to } => {
                disk.write_file(to, &content(file));
                disk.remove_file(file);
            }
        }
    }
}

/// Files by what they are for.
fn class(file: &str) -> &'static str {
    match file {
        "log.meta" => "log.meta",
        "consumers.list" => "consumers.list",
        "LOCK" => "LOCK",
        _ if file.starts_with("consumer-") => "consumer",
        _ if file.starts_with("checkpoint-") => "checkpoint",
        _ => "segment",
    }
}

/// The file of another disk that is for the same.
fn counterpart(disk: &SimStorage, file: &str) -> String {
    let names = disk.file_names();
    if names.iter().any(|name| name == file) {
        return file.to_owned();
    }
    let same = names.into_iter().find(|name| class(name) == class(file));
    same.unwrap_or_default()
}

fn put_sector(disk: &SimStorage, file: &str, sector: usize, bytes: &[u8]) {
    let mut content = disk.read_file(file).unwrap_or_default();
    let end = content.len().min((sector + 1) * SECTOR);
    let place = &mut content[sector * SECTOR..end];
    place.fill(0);
    let len = bytes.len().min(place.len());
    place[..len].copy_from_slice(&bytes[..len]);
    disk.write_file(file, &content);
}

/// Everything that is tried on a scene.
pub fn all(scene: &Scene, full: bool) -> Vec<Damage> {
    let mut all = Vec::new();
    let names: Vec<String> = scene.disk.file_names().into_iter().filter(|n| n != "LOCK").collect();
    let lens: Vec<usize> = names
        .iter()
        .map(|n| scene.disk.read_file(n).map_or(0, |c| c.len()))
        .collect();
    for (at, (file, &len)) in names.iter().zip(&lens).enumerate() {
        let file = || file.clone();
        let step = if full { 1 } else { 4 };
        for pos in (0..len).step_by(step) {
            let pos = (pos + pos / 4 % step).min(len - 1);
            let bits = if full {
                0..8
            } else {
                (pos % 8) as u32..(pos % 8) as u32 + 1
            };
            all.extend(bits.map(|bit| Damage::Bit { file: file(), pos, bit }));
        }
        let sectors = len.div_ceil(SECTOR);
        let alike: Vec<&String> = names
            .iter()
            .filter(|n| **n != names[at] && class(n) == class(&names[at]))
            .collect();
        for sector in 0..sectors {
            all.push(Damage::Blank { file: file(), sector });
            for from in (0..sectors).filter(|from| *from != sector) {
                all.push(Damage::Misplaced {
                    file: file(),
                    sector,
                    from,
                });
            }
            let sources = alike.iter().map(|n| Source::File((*n).clone()));
            all.extend(
                sources
                    .chain([Source::Other, Source::Earlier])
                    .map(|from| Damage::Sector {
                        file: file(),
                        sector,
                        from,
                    }),
            );
        }
        let step = if full { 1 } else { 16 };
        all.extend((0..len).step_by(step).map(|len| Damage::Cut { file: file(), len }));
        all.push(Damage::Removed { file: file() });
        let sources = alike.iter().map(|n| Source::File((*n).clone()));
        all.extend(
            sources
                .chain([Source::Other, Source::Earlier])
                .map(|from| Damage::Replaced { file: file(), from }),
        );
        for to in other_names(&names[at]) {
            all.push(Damage::Copied {
                file: file(),
                to: to.clone(),
            });
            all.push(Damage::Renamed { file: file(), to });
        }
    }
    // What changes nothing is no damage.
    all.retain(|damage| {
        let hurt = scene.disk.fork();
        matches!(damage, Damage::Bit { .. }) || {
            damage.apply(&hurt, scene);
            hurt.fingerprint() != scene.disk.fingerprint()
        }
    });
    all
}

/// Names that a file of this kind could have.
fn other_names(file: &str) -> Vec<String> {
    match class(file) {
        "segment" => {
            let (offset, generation) = file.trim_end_matches(".wal").split_once('-').unwrap_or_default();
            let generation: u64 = generation.parse().unwrap_or_default();
            let offset: u64 = offset.parse().unwrap_or_default();
            vec![
                format!("{offset:020}-{:016}.wal", generation + 7),
                format!("{:020}-{generation:016}.wal", offset + 1),
                format!("{:020}-{:016}.wal", offset + 1000, generation + 7),
                format!("{file}.tmp"),
            ]
        }
        "consumer" => vec!["consumer-d-0123456789abcdef.offset".to_owned(), format!("{file}.tmp")],
        "checkpoint" => vec!["checkpoint-00000000000000009999.kv".to_owned(), format!("{file}.tmp")],
        _ => vec![format!("{file}.tmp"), format!("{file}.bak")],
    }
}
