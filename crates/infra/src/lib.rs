pub mod local_model;
