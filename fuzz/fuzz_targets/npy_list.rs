#![no_main]
weightlift_fuzz::target!(weightlift_fuzz::npy::LIST);
