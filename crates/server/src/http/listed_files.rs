//! The files of a level as `/api/v1/shape` lists them: one by one while the store has few, else neighbours together, so that
//! an answer is bounded however many files there are. `store_view.rs` calls this.

use super::json::{FileShape, Key};

/// Files that a shape lists, beside [`FEW`] of each level.
pub(super) const MAX_LISTED: usize = 4000;
/// A level with at most this many files has each listed by itself, whatever other levels have.
pub(super) const FEW: usize = 100;

/// How the `files` of a level are listed, of a store that has `total` files.
pub(super) fn listed(files: &[terrace::FileShape], total: usize) -> Vec<FileShape> {
    let share = MAX_LISTED as u128 * files.len() as u128 / total.max(1) as u128;
    let most = usize::try_from(share).unwrap_or(MAX_LISTED).max(FEW);
    let together = files.len().div_ceil(most).max(1);
    files.chunks(together).filter_map(as_one).collect()
}

/// Neighbours as one; it has the number of the first.
fn as_one(files: &[terrace::FileShape]) -> Option<FileShape> {
    let first = files.first()?;
    let smallest = files.iter().map(|file| &file.smallest).min()?;
    let largest = files.iter().map(|file| &file.largest).max()?;
    let sum = |of: fn(&terrace::FileShape) -> u64| files.iter().map(of).sum::<u64>();
    let units =
        |of: fn(&terrace::FileShape) -> u32| files.iter().map(of).fold(0_u32, u32::saturating_add);
    let count = files.len() as u64;
    Some(FileShape {
        number: first.number,
        file_count: (count > 1).then_some(count),
        size_bytes: sum(|file| file.size_bytes),
        entry_count: sum(|file| file.entry_count),
        smallest: Key::of(smallest),
        largest: Key::of(largest),
        heat: files.iter().map(|file| file.heat).sum::<f64>() / count as f64,
        filter_bytes: sum(|file| file.filter_bytes),
        filter_units: units(|file| file.filter_units),
        filter_units_in_memory: units(|file| file.filter_units_in_memory),
        has_model: first
            .has_model
            .filter(|_| files.iter().all(|file| file.has_model == first.has_model)),
        is_compacting: files.iter().any(|file| file.is_compacting),
        created_ms: files.iter().map(|file| file.created_ms).max().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(count: u64) -> Vec<terrace::FileShape> {
        let file = |number: u64| terrace::FileShape {
            number,
            size_bytes: 10,
            entry_count: 2,
            smallest: (number * 2).to_be_bytes().to_vec(),
            largest: (number * 2 + 1).to_be_bytes().to_vec(),
            heat: number as f64,
            filter_units: 3,
            has_model: Some(true),
            created_ms: number,
            ..terrace::FileShape::default()
        };
        (0..count).map(file).collect()
    }

    #[test]
    fn few_files_are_listed_one_by_one() {
        for (count, total) in [(0, 0), (1, 1), (100, 1_000_000), (4000, 4000)] {
            let shown = listed(&files(count), total);
            assert_eq!(shown.len() as u64, count);
            assert!(shown.iter().all(|file| file.file_count.is_none()));
            assert!(shown.iter().zip(0..).all(|(file, number)| file.number == number));
        }
    }

    #[test]
    fn of_many_files_neighbours_are_listed_together_and_none_is_lost() {
        let levels = [1_u64, 101, 3999, 4001, 150_000];
        let total: u64 = levels.iter().sum();
        let mut all = 0;
        for count in levels {
            let shown = listed(&files(count), total as usize);
            all += shown.len();
            let counted: u64 = shown.iter().map(|file| file.file_count.unwrap_or(1)).sum();
            assert_eq!(counted, count);
            assert_eq!(shown.iter().map(|file| file.size_bytes).sum::<u64>(), count * 10);
            assert_eq!(shown.iter().map(|file| file.entry_count).sum::<u64>(), count * 2);
            assert_eq!(
                shown.iter().map(|file| u64::from(file.filter_units)).sum::<u64>(),
                count * 3
            );
            let in_order = |two: &[FileShape]| two[0].largest.hex < two[1].smallest.hex;
            assert!(shown.windows(2).all(in_order));
            assert_eq!(shown.last().map(|file| file.created_ms), Some(count - 1));
        }
        assert!(all > MAX_LISTED / 2 && all <= MAX_LISTED + FEW * levels.len(), "{all}");
    }

    #[test]
    fn neighbours_together_say_what_holds_for_any_or_all_of_them() {
        let mut two = files(2);
        two[1].is_compacting = true;
        // In L0 the first is the newest, whose keys may be larger.
        two.reverse();
        let one = as_one(&two).unwrap();
        assert_eq!((one.number, one.file_count, one.has_model), (1, Some(2), Some(true)));
        assert_eq!(
            (one.smallest.hex, one.largest.hex),
            (format!("{:016x}", 0), format!("{:016x}", 3))
        );
        assert!(one.is_compacting && one.heat == 0.5);
        for other in [Some(false), None] {
            two[1].has_model = other;
            assert_eq!(as_one(&two).unwrap().has_model, None);
        }
    }
}
