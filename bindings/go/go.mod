module terrace.example

go 1.19
