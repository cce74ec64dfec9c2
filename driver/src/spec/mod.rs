//! What the NVM Express specifications put on the wire and in registers.
