//! What the tests of VFIO itself share.
#![expect(
    unsafe_code,
    reason = "mapping memory for a device is a promise about raw memory"
)]

use crate::machine;
use crate::test::Outcome;
use driver::memory::{DmaTarget, DmaTargetError};
use driver::transport::pci::PciAddress;
use driver::transport::vfio::{SetupError, VfioTarget, VfioTransport};
use hil::boots::Controller;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::error::Error;
use std::fmt::Display;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of a page in the guest.
pub(crate) const PAGE: usize = 4096;

pub(crate) fn address(controller: &Controller) -> PciAddress {
    controller
        .address()
        .parse()
        .expect("the table holds PCI addresses")
}

/// The file of the controller's IOMMU group.
pub(crate) fn group_file(controller: &Controller) -> String {
    format!(
        "/dev/vfio/{}",
        machine::iommu_group(controller).expect("it has a group")
    )
}

pub(crate) fn open(
    controller: &Controller,
    existing: Option<Arc<VfioTarget>>,
) -> Result<VfioTransport, SetupError> {
    VfioTransport::open(address(controller), existing)
}

/// Fails, and shows the text, unless it contains all of `parts`.
#[track_caller]
pub(crate) fn contains(text: &impl Display, parts: &[&str]) {
    let text = text.to_string();
    println!("{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

/// Does what the `echo WORD > FILE` commands between the text's backticks say.
pub(crate) fn obey(text: &impl Display) -> Outcome {
    let mut obeyed = 0;
    for commands in text.to_string().split('`').skip(1).step_by(2) {
        for command in commands.split("; ") {
            if let Some((word, file)) = command
                .strip_prefix("echo ")
                .and_then(|rest| rest.split_once(" > "))
            {
                fs::write(file, format!("{word}\n")).map_err(|e| format!("{command}: {e}"))?;
                obeyed += 1;
            }
        }
    }
    if obeyed == 0 {
        Err("the text holds no command".into())
    } else {
        Ok(())
    }
}

/// Where the tests map page `page`.
pub(crate) fn iova(page: usize) -> u64 {
    0x10_0000 + (page * PAGE) as u64
}

/// Anonymous pages that stay for as long as the test's process.
pub(crate) fn pages(count: usize) -> Result<NonNull<u8>, Box<dyn Error>> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses a place where nothing is mapped.
    let memory =
        unsafe { mmap_anonymous(std::ptr::null_mut(), count * PAGE, prot, MapFlags::PRIVATE) }?;
    Ok(NonNull::new(memory.cast()).ok_or("mapped at zero")?)
}

/// Maps `count` of the pages made by [`pages`], from page `first` on, to `iova`.
pub(crate) fn map(
    target: &dyn DmaTarget,
    iova: u64,
    pages: NonNull<u8>,
    first: usize,
    count: usize,
) -> Result<(), DmaTargetError> {
    // SAFETY: the tests ask for pages that they have made.
    let memory = unsafe { pages.add(first * PAGE) };
    // SAFETY: the pages are never unmapped, and no test makes references into them.
    unsafe { target.map(iova, memory, count * PAGE) }
}

/// Splits this process in two. In the child `child` is run, and its answer becomes the exit code.
/// Answers in the parent how the child ended: its code, or minus the signal that killed it.
pub(crate) fn fork(child: impl FnOnce() -> bool) -> Result<i32, Box<dyn Error>> {
    // SAFETY: the test's process has one thread, so that the child finds no lock held.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let passed = catch_unwind(AssertUnwindSafe(child)).unwrap_or(false);
        // SAFETY: ends the child at once; nothing of the parent's is torn down.
        unsafe { libc::_exit(if passed { 0 } else { 1 }) }
    }
    let pid = Pid::from_raw(pid).ok_or("fork failed")?;
    let (_, status) = waitpid(Some(pid), WaitOptions::empty())?.ok_or("no child")?;
    Ok(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => -signal,
        (None, None) => return Err("the child neither ended nor died".into()),
    })
}
