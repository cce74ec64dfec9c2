//! Reaching a controller through VFIO.
