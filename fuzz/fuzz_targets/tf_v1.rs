#![no_main]
weightlift_fuzz::target!(weightlift_fuzz::tf::VERSION_1);
