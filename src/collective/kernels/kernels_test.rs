//! Kernels against answers computed another way, on every type and operation.
