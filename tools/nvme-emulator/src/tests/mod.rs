//! Tests of the whole controller.
