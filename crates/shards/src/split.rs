//! Which tensor goes into which file.

/// Cuts runs of bytes into files of at most `limit` bytes, keeping their order: the number of the file for each run,
/// from 0. A run larger than the limit gets a file of its own. Runs are whole storages: tensors that share one stay
/// together.
///
/// ```
/// assert_eq!(weightlift_shards::split(&[4, 4, 9, 1, 2], 8), [0, 0, 1, 2, 2]);
/// ```
pub fn split(runs: &[u64], limit: u64) -> Vec<usize> {
    let mut files = Vec::with_capacity(runs.len());
    let (mut file, mut filled) = (0, None::<u64>);
    for &run in runs {
        let fits = filled.is_none_or(|filled| filled.checked_add(run).is_some_and(|sum| sum <= limit));
        if !fits {
            file += 1;
            filled = None;
        }
        filled = Some(filled.unwrap_or(0).saturating_add(run));
        files.push(file);
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn empty_runs_join_the_file_before() {
        assert_eq!(split(&[8, 0, 1], 8), [0, 0, 1]);
        assert_eq!(split(&[0, 9, 0, 1], 8), [0, 1, 2, 2]);
        assert_eq!(split(&[u64::MAX, 0, u64::MAX], u64::MAX), [0, 0, 1]);
        assert_eq!(split(&[], 8), [0usize; 0]);
        assert_eq!(split(&[1, 1], 0), [0, 1]);
    }

    proptest! {
        #[test]
        fn files_are_full_and_never_too_full(runs in prop::collection::vec(0u64..20, 0..40), limit in 1u64..30) {
            let files = split(&runs, limit);
            prop_assert_eq!(files.len(), runs.len());
            prop_assert!(files.windows(2).all(|pair| pair[1] == pair[0] || pair[1] == pair[0] + 1));
            prop_assert!(files.first().is_none_or(|&first| first == 0));
            let count = files.last().map_or(0, |last| last + 1);
            let mut sums = vec![0; count];
            let mut members = vec![0; count];
            for (&file, &run) in files.iter().zip(&runs) {
                sums[file] += run;
                members[file] += 1;
            }
            prop_assert!((0..count).all(|file| sums[file] <= limit || members[file] == 1));
            for (index, pair) in files.windows(2).enumerate() {
                prop_assert!(pair[0] == pair[1] || sums[pair[0]] + runs[index + 1] > limit, "a file ended early");
            }
        }
    }
}
