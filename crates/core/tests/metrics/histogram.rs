//! How long things take, counted by ranges.

use posse_core::metrics::Observed;

#[test]
fn a_bound_belongs_to_the_range_it_ends() {
    let mut read = Observed::default();
    for ms in [-3, 0, 5, 6, 3_600_000, 3_600_001] {
        read.observe(ms);
    }
    assert_eq!((read.count, read.sum_ms), (6, 5 + 6 + 3_600_000 + 3_600_001));
    assert_eq!(read.up_to_ms[..2], [(5, 3), (10, 4)]);
    assert_eq!(read.up_to_ms.last(), Some(&(3_600_000, 5)));
}
