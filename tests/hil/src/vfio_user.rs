//! VFIO as an ordinary user, set up as docs/running-as-a-user.md says.

use crate::test::{Context, Outcome, Test};
use crate::vfio_kit::{self as kit, PAGE, contains, open};
use driver::controller::{Controller, ControllerOptions, QueueOptions};
use driver::memory::{DmaDomain, DmaTarget, DmaTargetError};
use driver::namespace::{BlockingIo, Lba};
use driver::transport::vfio::{SetupError, preflight};
use hil::boots::LBA512;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::error::Error;
use std::os::unix::fs::chown;

/// The ordinary user.
const USER: u32 = 1000;
/// Debian's default locked-memory limit for ordinary users.
const DEFAULT_LIMIT: u64 = 8 << 20;
/// The locked-memory limit that some distributions give to ordinary users.
const SMALL_LIMIT: u64 = 64 << 10;

pub(crate) fn tests() -> Vec<Test> {
    let plain = &["plain"];
    vec![
        Test::new("vfio_user::no_permission", plain, no_permission),
        Test::part("vfio_user::no_permission_part", no_permission_part),
        Test::new(
            "vfio_user::an_ordinary_user_attaches",
            plain,
            an_ordinary_user_attaches,
        ),
        Test::new(
            "vfio_user::an_ordinary_user_reads_and_writes",
            plain,
            an_ordinary_user_reads_and_writes,
        ),
        Test::part("vfio_user::user_limit_part", user_limit_part),
        Test::part("vfio_user::user_data_part", user_data_part),
        Test::part("vfio_user::ordinary_user_part", ordinary_user_part),
    ]
}

/// An ordinary user who does not own the group's file is told which file it is.
fn no_permission(context: &Context) -> Outcome {
    context.run_as_user(USER, "vfio_user::no_permission_part")
}

fn no_permission_part(_: &Context) -> Outcome {
    let error = open(&LBA512, None).expect_err("it opened");
    let report = preflight(kit::address(&LBA512), 0)?;
    println!("{report}");
    for error in [&error, &report.obstacles[0]] {
        assert!(
            matches!(
                error,
                SetupError::NoPermission {
                    uid: USER,
                    owner: 0,
                    ..
                }
            ),
            "{error:?}"
        );
        let file = kit::group_file(&LBA512);
        contains(
            error,
            &[
                &file,
                "uid 1000",
                "mode 0600",
                &format!("chown 1000 {file}"),
            ],
        );
    }
    Ok(())
}

/// As docs/running-as-a-user.md says: the group's file is the user's, and the limit large enough.
fn an_ordinary_user_attaches(context: &Context) -> Outcome {
    as_owner(context, &["vfio_user::ordinary_user_part"])
}

/// The whole way as an ordinary user: too low a limit is told, with Debian's default data flows.
fn an_ordinary_user_reads_and_writes(context: &Context) -> Outcome {
    as_owner(
        context,
        &["vfio_user::user_limit_part", "vfio_user::user_data_part"],
    )
}

/// Runs parts of a test as the user, who owns the group's file meanwhile.
fn as_owner(context: &Context, parts: &[&str]) -> Outcome {
    let file = kit::group_file(&LBA512);
    chown(&file, Some(USER), None)?;
    let outcome = parts
        .iter()
        .try_for_each(|part| context.run_as_user(USER, part));
    chown(&file, Some(0), None)?;
    outcome
}

fn limit_memlock(bytes: u64) -> Outcome {
    let limit = Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    Ok(setrlimit(Resource::Memlock, limit)?)
}

fn user_limit_part(_: &Context) -> Outcome {
    limit_memlock(SMALL_LIMIT)?;
    let (domain, options) = (DmaDomain::new(), ControllerOptions::default());
    let error = Controller::open_pci(kit::address(&LBA512), &domain, &options).map(drop);
    let mut text = String::new();
    let mut cause: Option<&dyn Error> = match &error {
        Ok(()) => None,
        Err(error) => Some(error),
    };
    while let Some(error) = cause {
        text += &format!("{error}\n");
        cause = error.source();
    }
    contains(&text, &["RLIMIT_MEMLOCK", "limit 65536", "LimitMEMLOCK="]);
    Ok(())
}

fn user_data_part(_: &Context) -> Outcome {
    limit_memlock(DEFAULT_LIMIT)?;
    let report = preflight(kit::address(&LBA512), DEFAULT_LIMIT)?;
    assert!(report.is_clear(), "{report}");
    let (domain, options) = (DmaDomain::new(), ControllerOptions::default());
    let controller = Controller::open_pci(kit::address(&LBA512), &domain, &options)?;
    let queue = controller.queue_pair(&QueueOptions::default())?;
    let mut io = BlockingIo::new(queue, controller.namespace(1)?);
    let written = [0x5a; PAGE];
    io.write_from_slice(&domain, Lba(8), &written)?;
    let mut read = [0; PAGE];
    io.read_to_slice(&domain, Lba(8), &mut read)?;
    assert!(read == written);
    Ok(())
}

/// Sixteen pages fit into 64 KiB, and the seventeenth does not.
fn ordinary_user_part(_: &Context) -> Outcome {
    limit_memlock(SMALL_LIMIT)?;
    let address = kit::address(&LBA512);
    let report = preflight(address, SMALL_LIMIT)?;
    assert!(report.is_clear(), "{report}");
    contains(
        &report,
        &[
            "will lock     64 KiB",
            "may lock      64 KiB, 0 KiB locked already",
        ],
    );

    let transport = open(&LBA512, None)?;
    let target = transport.target();
    let memory = kit::pages(17)?;
    for page in 0..16 {
        kit::map(&*target, kit::iova(page), memory, page, 1)?;
    }
    let error = kit::map(&*target, 0x20_0000, memory, 16, 1).expect_err("too much was locked");
    assert!(
        matches!(
            error,
            DmaTargetError::MemlockLimit {
                need: 4096,
                limit: SMALL_LIMIT,
                locked: SMALL_LIMIT
            }
        ),
        "{error:?}"
    );
    contains(
        &error,
        &["65536", "RLIMIT_MEMLOCK", "ulimit -l", "LimitMEMLOCK="],
    );

    // Asked beforehand, the answer is the same.
    let report = preflight(address, 4096)?;
    let error = target.check_room(4096).expect_err("there is room");
    let found = report.obstacles.iter().chain([&error]);
    let found: Vec<_> = found
        .filter(|error| matches!(error, SetupError::MemlockTooLow { .. }))
        .collect();
    assert_eq!(found.len(), 2, "{report}");
    for error in found {
        contains(
            error,
            &["4096 bytes", "65536", "68 KiB or more", "limits.conf"],
        );
    }
    for page in 0..16 {
        target.unmap(kit::iova(page), PAGE)?;
    }
    target.check_room(SMALL_LIMIT)?;
    Ok(())
}
