module slow_s3

go 1.21
