//! Damaged images, as `tests/fuzz` makes them, from a random number generator.

use crash::damage::{Survived, damage_and_use, images, survive};
use driver::memory::DmaDomain;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The images that are damaged are good ones, and the checksums that are made right again are right.
#[test]
fn the_images_are_valid() {
    let domain = DmaDomain::new();
    for image in images(&domain).expect("images") {
        let mut again = image.bytes.clone();
        image.layout.reseal(&mut again);
        let changed = (0..again.len()).find(|&at| again[at] != image.bytes[at]);
        assert_eq!(changed, None, "nothing changes");
        let survived = survive(again, image.lba, &domain).expect("sound");
        let Survived {
            read,
            written,
            salvaged,
            seen,
        } = survived;
        assert!(read && written && salvaged && seen > 30, "{survived:?}");
    }
}

/// Thousands of images, each with some fields changed, most of them behind checksums that are right:
/// all that is done with them gives an answer. `DOORBELL_SEED` repeats a run.
#[test]
fn damaged_images_give_data_or_errors() {
    let given = std::env::var("DOORBELL_SEED").ok();
    let seed = given.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("DOORBELL_SEED={seed}");
    let domain = DmaDomain::new();
    let (mut mounted, mut refused) = (0, 0);
    for number in 0..3000 {
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(number));
        let stream: Vec<u8> = (0..rng.usize(8..80)).map(|_| rng.u8(..)).collect();
        let tried = catch_unwind(AssertUnwindSafe(|| damage_and_use(&stream, &domain)));
        match tried {
            Ok(Ok(survived)) if survived.read => mounted += 1,
            Ok(Ok(_)) => refused += 1,
            Ok(Err(violation)) => panic!("number {number}, {stream:02x?}: {violation}"),
            Err(_) => panic!("number {number}, {stream:02x?}: a panic"),
        }
    }
    println!("{mounted} were mounted, {refused} were refused");
    // Otherwise the changes would be too many, or none.
    assert!(mounted > 300 && refused > 300);
}
