//! Replaying what is sound of damaged segments, whatever lies between: for `terrace repair`, which tells
//! of every gap. A store is opened with [`crate::recover()`], which never goes on behind a hole.

use crate::format::{HEADER_BYTES, LogPosition};
use crate::reader::{LogReader, RecordKind, Step};
use crate::recover::{Apply, Part, Recovered, SegmentFile, chain};
use terrace_base::{Result, SegmentNumber};
use terrace_vfs::{Vfs, is_unreadable};

/// A place in a log where something is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Number of the segment.
    pub segment: SegmentNumber,
    /// Where it begins in the segment.
    pub offset: u64,
    /// What is wrong there.
    pub why: String,
}

/// Replays every sound data record of `segments` (ascending) in the order of the log, but for what a
/// recovery before has dropped: segments that no link leads to are reported as skipped, and of a segment that is
/// continued at a place only what stands before it counts. Sectors that the device does not give are passed over like
/// other damage, and so is a segment of which it does not give what is needed to open it, or under whose name another one
/// stands. Gives what else was passed over. Writes nothing.
///
/// # Errors
/// I/O; `Unsupported`; what `apply` returns, unless it is corruption: that is a gap.
pub fn salvage(
    vfs: &dyn Vfs,
    segments: &[SegmentFile],
    apply: &mut Apply<'_>,
) -> Result<(Recovered, Vec<Gap>)> {
    let Opened { segments, mut readers, mut gaps } = open(vfs, segments)?;
    let unopened: Vec<SegmentNumber> = gaps.iter().map(|gap| gap.segment).collect();
    let mut recovered = Recovered::default();
    let chain = chain(&segments, &readers);
    let skipped = (0..segments.len()).filter(|at| !chain.iter().any(|part| part.index == *at));
    recovered.skipped = skipped.map(|at| segments[at].number).collect();
    for part in &chain {
        if let Some(LogPosition { segment, offset: end }) = part.missing
            && !unopened.contains(&segment)
        {
            let why = format!("the segment, with records up to {end}, is missing");
            gaps.push(Gap { segment, offset: 0, why });
        }
        let reader = &mut readers[part.index];
        one(part, reader, apply, &mut recovered, &mut gaps)?;
        let offset = reader.position().max(HEADER_BYTES);
        recovered.end = Some(LogPosition { segment: reader.segment(), offset });
    }
    gaps.sort_by_key(|gap| (gap.segment, gap.offset));
    Ok((recovered, gaps))
}

/// The segments that can be opened, and the others.
struct Opened {
    segments: Vec<SegmentFile>,
    /// Of each of these.
    readers: Vec<LogReader>,
    gaps: Vec<Gap>,
}

fn open(vfs: &dyn Vfs, segments: &[SegmentFile]) -> Result<Opened> {
    let mut opened = Opened { segments: Vec::new(), readers: Vec::new(), gaps: Vec::new() };
    for segment in segments {
        match LogReader::open_around_loss(vfs, &segment.path, segment.number) {
            // An encrypted one cannot be read without its first bytes. Of another one no record has a checksum that is right
            // here.
            Err(error) if is_unreadable(&error) || error.is_corruption() => {
                let (segment, why) = (segment.number, error.to_string());
                opened.gaps.push(Gap { segment, offset: 0, why });
            }
            reader => {
                opened.readers.push(reader?);
                opened.segments.push(segment.clone());
            }
        }
    }
    Ok(opened)
}

fn one(
    part: &Part,
    reader: &mut LogReader,
    apply: &mut Apply<'_>,
    recovered: &mut Recovered,
    gaps: &mut Vec<Gap>,
) -> Result<()> {
    let segment = reader.segment();
    loop {
        let offset = reader.position();
        if part.until.is_some_and(|until| offset >= until) {
            return Ok(());
        }
        let why = match reader.next() {
            Ok(Step::Record(record)) => {
                if record.kind != RecordKind::Data {
                    continue;
                }
                match apply(segment, record.offset, record.payload) {
                    Ok(()) => recovered.records += 1,
                    Err(error) if error.is_corruption() => {
                        gaps.push(Gap { segment, offset: record.offset, why: error.to_string() });
                    }
                    Err(error) => return Err(error),
                }
                continue;
            }
            Ok(Step::End { torn, .. }) => match (part.until, torn) {
                (None, None) => return Ok(()),
                (Some(until), None) => format!("records up to {until} should follow"),
                (_, Some(why)) => why,
            },
            // A sync marker of a wrong length: the record before and behind it count.
            Err(error) if error.is_corruption() => error.to_string(),
            Err(error) => return Err(error),
        };
        gaps.push(Gap { segment, offset, why });
        if reader.resync()?.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogOptions, LogWriter};
    use std::path::Path;
    use std::path::PathBuf;
    use terrace_vfs::{BeforeCalls, Call, OpenMode, SimVfs};

    fn path(number: SegmentNumber) -> PathBuf {
        PathBuf::from(format!("/log/{number:06}.log"))
    }

    /// Three linked segments of ten records each.
    fn log() -> (SimVfs, Vec<SegmentFile>) {
        let sim = SimVfs::new(1);
        sim.create_dir_all(Path::new("/log")).unwrap();
        let mut end = None;
        let numbers = || (1..=3).map(SegmentNumber::new);
        for number in numbers() {
            let options = LogOptions::default();
            let mut writer =
                LogWriter::create_after(&sim, &path(number), number, &options, end).unwrap();
            for n in 0..10 {
                writer.append(&[format!("record {}", number.get() * 10 + n).as_bytes()]).unwrap();
            }
            writer.sync().unwrap();
            end = Some(LogPosition { segment: number, offset: writer.len_bytes() });
        }
        (sim, numbers().map(|number| SegmentFile { number, path: path(number) }).collect())
    }

    fn salvaged(sim: &SimVfs, segments: &[SegmentFile]) -> (Vec<String>, Vec<Gap>) {
        let mut seen = Vec::new();
        let mut apply = |_: SegmentNumber, _: u64, payload: &[u8]| {
            seen.push(String::from_utf8(payload.to_vec()).unwrap());
            Ok(())
        };
        let (_, gaps) = salvage(sim, segments, &mut apply).unwrap();
        (seen, gaps)
    }

    #[test]
    fn every_damaged_byte_costs_one_record_at_most_and_is_told() {
        let (sim, segments) = log();
        let (all, gaps) = salvaged(&sim, &segments);
        assert_eq!((all.len(), gaps), (30, Vec::new()));
        let len = sim.len(&path(SegmentNumber::new(2))).unwrap();
        for at in 0..len {
            let image = sim.kill_image();
            if !image.corrupt(path(SegmentNumber::new(2)), at, 0x41) {
                continue;
            }
            let (seen, gaps) = salvaged(&image, &segments);
            assert!(seen.len() >= 29, "byte {at}: {} of 30", seen.len());
            assert!(seen.iter().all(|record| all.contains(record)), "byte {at}");
            assert!(seen.len() == 30 || !gaps.is_empty(), "byte {at}");
        }
    }

    #[test]
    fn a_missing_segment_is_a_gap_and_what_follows_it_counts() {
        let (sim, segments) = log();
        for missing in 0..3 {
            let mut left = segments.clone();
            let number = left.remove(missing).number;
            let (seen, gaps) = salvaged(&sim, &left);
            assert_eq!(seen.len(), 20);
            // Nothing in the log says what stood before its first segment, or behind its last.
            let told = gaps.iter().any(|gap| gap.segment == number);
            assert_eq!(told, missing == 1, "{gaps:?}");
        }
    }

    #[test]
    fn a_segment_that_cannot_be_opened_is_a_gap_and_the_others_count() {
        let (sim, segments) = log();
        for lost in 0..3 {
            let sim = sim.kill_image();
            assert!(sim.lose_sector(&segments[lost].path, 0..512));
            // It cannot open files of which the device does not give the beginning, as an encrypted one.
            let below = sim.clone();
            let vfs = BeforeCalls::new(sim, move |call, path| match call {
                Call::Open => below.open(path, OpenMode::default())?.read_at(0, &mut [0]),
                _ => Ok(()),
            });
            let mut seen = 0;
            let mut apply = |segment: SegmentNumber, _: u64, _: &[u8]| {
                assert_ne!(segment, segments[lost].number);
                seen += 1;
                Ok(())
            };
            let (recovered, gaps) = salvage(&vfs, &segments, &mut apply).unwrap();
            assert_eq!((seen, gaps.len()), (20, 1), "{gaps:?}");
            assert_eq!((gaps[0].segment, gaps[0].offset), (segments[lost].number, 0));
            assert!(recovered.skipped.is_empty());
        }
    }

    #[test]
    fn a_segment_under_the_name_of_another_is_a_gap_and_the_others_count() {
        let (sim, segments) = log();
        for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 1)] {
            let image = sim.kill_image();
            let content = sim.read_file(&segments[from].path).unwrap();
            assert!(image.write_file(&segments[to].path, content));
            let (seen, gaps) = salvaged(&image, &segments);
            assert_eq!((seen.len(), gaps.len()), (20, 1), "{from} {to}: {gaps:?}");
            assert_eq!((gaps[0].segment, gaps[0].offset), (segments[to].number, 0));
        }
        // A copy behind the end of the log.
        let number = SegmentNumber::new(9);
        sim.hard_link(&segments[0].path, &path(number)).unwrap();
        let more = [&segments[..], &[SegmentFile { number, path: path(number) }]].concat();
        let (seen, gaps) = salvaged(&sim, &more);
        assert_eq!((seen.len(), gaps.len(), gaps[0].segment), (30, 1, number), "{gaps:?}");
    }

    #[test]
    fn a_sector_that_cannot_be_read_costs_the_records_in_it_and_is_told() {
        let sim = SimVfs::new(1);
        sim.create_dir_all(Path::new("/log")).unwrap();
        let number = SegmentNumber::new(1);
        let mut writer =
            LogWriter::create(&sim, &path(number), number, &LogOptions::default()).unwrap();
        let mut places = Vec::new();
        for n in 0..900 {
            let text = format!("{n} {}", "x".repeat(1000));
            let start = writer.len_bytes();
            writer.append(&[text.as_bytes()]).unwrap();
            places.push((text, start..writer.len_bytes()));
        }
        writer.sync().unwrap();
        drop(writer);
        let segments = [SegmentFile { number, path: path(number) }];
        let len = sim.len(&path(number)).unwrap();
        for sector in (0..len.div_ceil(4096)).step_by(17) {
            let image = sim.kill_image();
            let lost = sector * 4096 + 700..sector * 4096 + 1200;
            assert!(image.lose_sector(path(number), lost));
            let (seen, gaps) = salvaged(&image, &segments);
            // Those that it lies in.
            let lost = sector * 4096 + 512..sector * 4096 + 1536;
            let outside =
                |place: &std::ops::Range<u64>| place.end <= lost.start || place.start >= lost.end;
            let sound = places.iter().filter(|(_, place)| outside(place));
            assert!(sound.map(|(text, _)| text).eq(&seen), "sector {sector}: {}", seen.len());
            assert_eq!(gaps.len(), 1, "sector {sector}");
        }
    }
}
