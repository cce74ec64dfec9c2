//! Bring-up, admin queue, shutdown.
